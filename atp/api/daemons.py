"""The daemons: who works, and what each worker has in hand."""

from django.http import Http404
from rest_framework.response import Response

from .. import documents, overview
from ..web import permissions
from .base import View
from .operation import DAEMON_UUID, Answer, Operation
from .serializers import DaemonSerializer, page_of


class DaemonsView(View):
    tag = "daemons"
    operations = {
        "GET": Operation(
            id="list_daemons",
            summary="All daemons, those longest running first",
            permissions=(permissions.VIEW_DAEMON,),
            answers={200: Answer(description="The daemons.", serializer=page_of(DaemonSerializer))},
        )
    }

    def get(self, request):
        now = overview.now()
        return self.whole([documents.daemon(row, now) for row in overview.daemons()])


class DaemonView(View):
    tag = "daemons"
    path_parameters = (DAEMON_UUID,)
    operations = {
        "GET": Operation(
            id="get_daemon",
            summary="One daemon",
            permissions=(permissions.VIEW_DAEMON,),
            answers={200: Answer(description="The daemon.", serializer=DaemonSerializer)},
            problems=(404,),
        )
    }

    def get(self, request, uuid):
        now = overview.now()
        for row in overview.daemons():
            if str(row.uuid) == uuid.lower():
                return Response(documents.daemon(row, now))
        raise Http404(f"There is no daemon {uuid}.")

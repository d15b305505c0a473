"""Telling a daemon what to do: an address for each order."""

from rest_framework.exceptions import ParseError
from rest_framework.response import Response

from .. import documents, overview, queue
from ..exceptions import UnknownDaemon
from ..modes import EXPLANATIONS
from ..web import permissions
from ..web.actor import API, actor
from .base import View, is_uuid
from .operation import DAEMON_UUID, Answer, Operation
from .serializers import DaemonSerializer


class OrderView(View):
    """Tells the daemon ``order``, where that makes a difference to what it is doing."""

    tag = "daemons"
    order = None
    path_parameters = (DAEMON_UUID,)

    @property
    def operations(self):
        return {
            "POST": Operation(
                id=f"{self.order.value}_daemon",
                summary=f"Tell a daemon to {self.order.label}",
                description=f"{EXPLANATIONS[self.order]} It acts within a second or two; its "
                "`mode` says when it has.",
                permissions=(permissions.VIEW_DAEMON, permissions.OPERATE),
                answers={
                    200: Answer(description="The daemon as it is now.", serializer=DaemonSerializer)
                },
                problems=(404, 409, 413, 415),
            )
        }

    def post(self, request, uuid):
        if not is_uuid(uuid):
            raise UnknownDaemon(f"{uuid!r} is not a uuid, so there is no such daemon.")
        daemon = queue.get_daemon(uuid)
        if request.data != {}:
            raise ParseError("This takes no body, or an empty object.")
        told = queue.command(daemon, self.order, by=actor(request, API))
        return Response(documents.daemon(told, overview.now()))

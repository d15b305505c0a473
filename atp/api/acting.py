"""What can be done with an Instance that exists: an address for each Action."""

from rest_framework.exceptions import ParseError
from rest_framework.response import Response

from ..web import permissions
from ..web.actor import API, actor
from .base import View
from .operation import UUID, Answer, Operation
from .serializers import InstanceSerializer


class ActionView(View):
    """Performs the Action ``verb``, where the state of the Instance allows it."""

    verb = None
    path_parameters = (UUID,)

    @property
    def operations(self):
        return {
            "POST": Operation(
                id=self.verb.name,
                summary=f"{self.verb.label} an Instance",
                description=self.verb.explanation,
                permissions=(permissions.VIEW_INSTANCE, permissions.OPERATE),
                answers={
                    200: Answer(
                        description="The Instance as it is now.", serializer=InstanceSerializer
                    )
                },
                problems=(404, 409, 413, 415),
            )
        }

    def post(self, request, uuid):
        instance = self.instance_of(uuid)
        if request.data != {}:
            raise ParseError("This takes no body, or an empty object.")
        self.verb.perform(instance, by=actor(request, API))
        return Response(self.detail_of(instance))

"""Instances: the list of them, one of them, and enqueueing."""

from rest_framework.exceptions import ParseError
from rest_framework.response import Response

from .. import queue
from ..conf import settings
from ..exceptions import UnknownInstance, WaitInTransaction, WaitTimeout
from ..models import Instance, Type
from ..web import permissions
from ..web.actor import API, actor
from ..web.filters import InstanceFilter, selected
from . import body, changing
from .base import View
from .filtering import parameters
from .operation import LIMIT, PAGE, UUID, WAIT, Answer, Operation
from .serializers import ChangeSerializer, EnqueueSerializer, InstanceSerializer, page_of

NEWEST_FIRST = ("-id",)


class InstancesView(View):
    operations = {
        "GET": Operation(
            id="list_instances",
            summary="Instances, newest first",
            permissions=(permissions.VIEW_INSTANCE,),
            parameters=(*parameters(InstanceFilter), PAGE, LIMIT),
            answers={200: Answer(description="Instances.", serializer=page_of(InstanceSerializer))},
        ),
        "POST": Operation(
            id="enqueue",
            summary="Enqueue one Instance, or many",
            description="An object enqueues one Instance, an array one for each of its items, "
            "all of them or none. The answer is an Instance or an array accordingly.",
            permissions=(permissions.VIEW_INSTANCE, permissions.OPERATE),
            body=EnqueueSerializer,
            takes_many=True,
            answers={
                201: Answer(
                    description="Enqueued; of many, at least one.",
                    serializer=InstanceSerializer,
                    is_array=True,
                    headers={"Location": "Address of the Instance; not of many."},
                ),
                200: Answer(
                    description="All of them existed already, by their identifiers.",
                    serializer=InstanceSerializer,
                    is_array=True,
                ),
            },
            problems=(409, 413, 415, 422),
        ),
    }

    def get(self, request):
        rows = Instance.objects.using(settings.DATABASE).select_related("type")
        chosen = selected(InstanceFilter, request.query_params, rows, others=("page", "limit"))
        return self.page(chosen.qs, NEWEST_FIRST, self.document_of)

    def post(self, request):
        if request.stream is None:
            raise ParseError("There is no body: it says what is to be enqueued.")
        enqueued = body.enqueue(request.data, by=actor(request, API))
        types = Type.objects.using(settings.DATABASE).in_bulk({each.type_id for each in enqueued})
        for instance in enqueued:
            instance.type = types[instance.type_id]
        made = [self.document_of(instance) for instance in enqueued]
        status = 201 if any(instance.is_new for instance in enqueued) else 200
        if isinstance(request.data, list):
            return Response(made, status=status)
        return Response(made[0], status=status, headers={"Location": made[0]["url"]})


class InstanceView(View):
    http_method_names = (*View.http_method_names, "patch")
    path_parameters = (UUID,)
    operations = {
        "GET": Operation(
            id="get_instance",
            summary="One Instance, perhaps after its end",
            permissions=(permissions.VIEW_INSTANCE,),
            parameters=(WAIT,),
            answers={
                200: Answer(description="The Instance as it is now.", serializer=InstanceSerializer)
            },
            problems=(404,),
        ),
        "DELETE": Operation(
            id="delete",
            summary="Remove an Instance, cancelling it first",
            description="What has ended, or waits, is removed at once, with its inputs, response, "
            "files and log. What a daemon holds is cancelled: delete it again when it has ended.",
            permissions=(permissions.VIEW_INSTANCE, permissions.DELETE),
            answers={
                200: Answer(
                    description="It is gone; this is what it was.", serializer=InstanceSerializer
                ),
                202: Answer(
                    description="It is to be cancelled, and still there.",
                    serializer=InstanceSerializer,
                ),
            },
            problems=(404, 413, 415),
        ),
        "PATCH": Operation(
            id="change",
            summary="Change an Instance that waits",
            description="Priority, due time, collection. One that a daemon holds, or that has "
            "ended, is left as it is.",
            permissions=(permissions.VIEW_INSTANCE, permissions.OPERATE),
            body=ChangeSerializer,
            answers={
                200: Answer(description="The Instance as it is now.", serializer=InstanceSerializer)
            },
            problems=(404, 409, 413, 415, 422),
        ),
    }

    def patch(self, request, uuid):
        if request.stream is None:
            raise ParseError("There is no body: it says what is to be changed.")
        instance = self.instance_of(uuid)
        changing.change(instance, request.data, by=actor(request, API))
        return Response(self.detail_of(instance))

    def get(self, request, uuid):
        instance = self.instance_of(uuid)
        if self.query.get("wait"):
            _wait(instance, self.query["wait"])
        return Response(self.detail_of(instance))

    def delete(self, request, uuid):
        instance = self.instance_of(uuid)
        document = self.detail_of(instance)
        if queue.delete(instance, by=actor(request, API), cancel=True):
            return Response(document)
        instance = self.instance_of(uuid)  # it may be gone by now
        return Response(self.detail_of(instance), status=202)


def _wait(instance, seconds):
    try:
        instance.wait(timeout=seconds)
    except (WaitTimeout, WaitInTransaction):
        pass  # it is answered with as it is
    except Instance.DoesNotExist:
        raise UnknownInstance(f"There is no Instance {instance.uuid} any more.") from None

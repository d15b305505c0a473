"""What belongs to an Instance: its log, its inputs, its response and its files."""

import re

from django.http import Http404
from rest_framework.response import Response

from .. import documents, queue
from ..conf import settings
from ..models import LogRecord
from ..web import permissions, raw
from .base import View
from .media import AnyAccept
from .operation import FILE_NUMBER, LIMIT, PAGE, UUID, Answer, Operation
from .serializers import FileSerializer, InputsSerializer, LogRecordSerializer, page_of

_OLDEST_FIRST = ("id",)
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_AS_IT_IS = (
    "As the handler has made it, with its content type. It is never to be run in this site: the "
    "headers say so to browsers."
)


class LogView(View):
    path_parameters = (UUID,)
    operations = {
        "GET": Operation(
            id="list_log",
            summary="The log of an Instance, oldest first",
            permissions=(permissions.VIEW_INSTANCE, permissions.VIEW_LOG),
            parameters=(PAGE, LIMIT),
            answers={
                200: Answer(description="LogRecords.", serializer=page_of(LogRecordSerializer))
            },
            problems=(404,),
        )
    }

    def get(self, request, uuid):
        instance = self.instance_of(uuid)
        records = LogRecord.objects.using(settings.DATABASE).filter(instance=instance)
        return self.page(records, _OLDEST_FIRST, documents.log_record)


class InputsView(View):
    path_parameters = (UUID,)
    operations = {
        "GET": Operation(
            id="get_inputs",
            summary="The inputs of an Instance",
            permissions=(permissions.VIEW_INSTANCE, permissions.VIEW_INPUTS),
            answers={200: Answer(description="The inputs.", serializer=InputsSerializer)},
            problems=(404,),
        )
    }

    def get(self, request, uuid):
        instance = self.instance_of(uuid)
        row = queue.inputs(instance)
        if row is None:
            raise Http404("There are no inputs.")
        return Response(documents.inputs(row))


class ResponseView(View):
    """The output as it is; see :mod:`atp.web.raw`."""

    content_negotiation_class = AnyAccept
    path_parameters = (UUID,)
    operations = {
        "GET": Operation(
            id="get_response",
            summary="What the handler has answered",
            description=_AS_IT_IS,
            permissions=(permissions.VIEW_INSTANCE, permissions.VIEW_RESPONSE),
            answers={200: Answer(description="The response.")},
            problems=(404,),
        )
    }

    def get(self, request, uuid):
        instance = self.instance_of(uuid)
        return raw.body_of(queue.response(instance), f"response-{instance.uuid}")


class FilesView(View):
    path_parameters = (UUID,)
    operations = {
        "GET": Operation(
            id="list_files",
            summary="The files that the handler has published",
            permissions=(permissions.VIEW_INSTANCE, permissions.VIEW_RESPONSE),
            answers={200: Answer(description="The files.", serializer=page_of(FileSerializer))},
            problems=(404,),
        )
    }

    def get(self, request, uuid):
        instance = self.instance_of(uuid)
        response = queue.response(instance)
        files = [] if response is None else documents.response(response)["files"]
        return self.whole(
            [
                {"number": number, **file, "url": self.url("file", instance.uuid, number)}
                for number, file in enumerate(files)
            ]
        )


class FileView(View):
    content_negotiation_class = AnyAccept
    path_parameters = (UUID, FILE_NUMBER)
    operations = {
        "GET": Operation(
            id="get_file",
            summary="A file that the handler has published",
            description=_AS_IT_IS,
            permissions=(permissions.VIEW_INSTANCE, permissions.VIEW_RESPONSE),
            answers={200: Answer(description="The file.")},
            problems=(404,),
        )
    }

    def get(self, request, uuid, number):
        instance = self.instance_of(uuid)
        if not _NUMBER.fullmatch(number):
            raise Http404(f"{number!r} is no number of a file.")
        return raw.file_of(queue.response(instance), int(number))

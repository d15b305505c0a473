"""Turning the value that a handler returned into its stored Response."""

from django.core.files.base import ContentFile

from ...authoring.output import Output
from ...authoring.storage import storage_path, store_file
from ...conf import settings
from ...payload import codec
from ...store.values import ResponseData
from ...verbs.registry import registry


def respond(value, task_type, claimed):
    """Return the :class:`ResponseData` of a returned value; None for None.

    The worker writes a large response into Django's storage itself, so that the dispatcher
    never has to carry it. If the Type keeps no FINISHED Instances, return None too. Raises
    NotSerializable.
    """
    if value is None:
        return None
    content_type, body = _render(value, task_type)
    if not registry.keeps(task_type.identifier):
        return None  # it would be removed with the Instance; rendering has checked the value
    if len(body) <= settings.MAX_RESPONSE_INLINE:
        return ResponseData(content_type=content_type, data=body, size=len(body))
    path = storage_path(claimed.uuid, claimed.attempt, "response")
    stored = store_file(path, ContentFile(body))
    return ResponseData(content_type=content_type, data=None, file=stored, size=len(body))


def _render(value, task_type):
    if isinstance(value, (bytes, bytearray, memoryview)):
        value = Output(value)
    if isinstance(value, Output):
        if isinstance(value.content, str):
            return value.content_type or "text/plain; charset=utf-8", value.content.encode()
        return value.content_type or "application/octet-stream", bytes(value.content)
    payload = codec.encode(value, format=task_type.serializer, what="The response")
    kinds = {codec.JSON: "application/json", codec.PICKLE: codec.PICKLE_CONTENT_TYPE}
    return kinds[payload.format], payload.data.encode()

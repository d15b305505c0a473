"""Turning the value that a handler returned into its stored Response."""

from contextlib import suppress

from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.db import Error

from ...authoring.context import Output, storage_path, store_file
from ...conf import settings
from ...exceptions import NotSerializable
from ...models import Response, Task
from ...operations.registry import registry
from ...payload import codec
from ...payload.json import holds_bytes
from ...store.values import ResponseData
from ...text import exception_words

# The number of attempts before this one whose stored responses are looked for.
MOST_LOST = 20


def respond(value, task_type, claimed):
    """Return the :class:`ResponseData` of a returned value; None for None.

    The worker writes a large response into Django's storage itself, so that the dispatcher
    never has to carry it. If nobody would read that, since the Type keeps no FINISHED Instances,
    return None too. Raises NotSerializable.
    """
    if value is None:
        return None
    content_type, body = _render(value, task_type)
    if len(body) <= settings.MAX_RESPONSE_INLINE:
        return ResponseData(content_type=content_type, data=body, size=len(body))
    if not registry.keeps(task_type.identifier) and not _is_awaited(claimed):
        return None  # it would be removed with the Instance; rendering has checked the value
    if claimed.lost:
        _forget_lost(claimed)
    path = storage_path(claimed.uuid, claimed.attempt, "response")
    stored = store_file(path, ContentFile(body))
    return ResponseData(content_type=content_type, data=None, file=stored, size=len(body))


def _is_awaited(claimed):
    """Whether other nodes of a graph, or hooks, may read the response."""
    rows = Task.objects.using(settings.DATABASE).filter(pk=claimed.instance)
    try:
        return rows.filter(waits__isnull=False).exists()
    except Error:
        return True


def _forget_lost(claimed):
    """Remove the responses that lost attempts have stored: no row names them."""
    # The database and the storage may fail in their own ways; then a file is left.
    with suppress(Exception):
        storage = storages[settings.STORAGE]
        rows = Response.objects.using(settings.DATABASE).filter(pk=claimed.instance)
        named = {path for row in rows for path in row.stored_paths}
        for attempt in range(max(1, claimed.attempt - MOST_LOST), claimed.attempt):
            path = storage_path(claimed.uuid, attempt, "response")
            if path not in named:  # a handler may publish a file of this name
                storage.delete(path)


def _render(value, task_type):
    if isinstance(value, (bytes, bytearray, memoryview)):
        value = Output(value)
    if isinstance(value, Output):
        return _raw(value)
    payload = codec.encode(value, format=task_type.serializer, what="The response")
    kinds = {codec.JSON: "application/json", codec.PICKLE: codec.PICKLE_CONTENT_TYPE}
    return kinds[payload.format], payload.data.encode()


def _raw(output):
    """Return content type and body of text or bytes. Raises NotSerializable."""
    content = output.content
    if isinstance(content, memoryview) and not holds_bytes(content):
        raise NotSerializable("The response is a memoryview of something else than bytes in a row.")
    try:
        if isinstance(content, str):
            return output.content_type or "text/plain; charset=utf-8", str.encode(content)
        return output.content_type or "application/octet-stream", bytes(content)
    # Text that is not valid Unicode, or a subclass with code that may raise anything.
    except Exception as error:
        raise NotSerializable(
            f"The response cannot be written: {exception_words(error)}."
        ) from error

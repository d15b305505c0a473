"""Raw output of handlers over HTTP, never as a page of this site (G14).

A response may be HTML or SVG with a script, and the user who opens it is logged in here.
So the browser shows only pictures, plain text and JSON. It downloads everything else. Three
headers say so, for browsers that know only some of them.
"""

import mimetypes
import re

from asgiref.sync import sync_to_async
from django.core.files.storage import storages
from django.http import FileResponse, Http404, HttpResponse
from django.utils.http import content_disposition_header

from ..conf import settings
from ..reports import documents

PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})
_SHOWN = PICTURES | {"text/plain", "application/json"}
_WORD = r"[\w.+-]+"
_VALUE = r"(?:\"[ -!#-\[\]-~]*\"|[\w.+:/-]+)"
_CONTENT_TYPE = re.compile(rf"{_WORD}/{_WORD}(?:\s*;\s*{_WORD}={_VALUE})*", re.ASCII)
_UNKNOWN = "application/octet-stream"


class _Streamed(FileResponse):
    """A file that is sent part by part, under ASGI too."""

    # In bytes.
    block_size = 2**18

    async def __aiter__(self):
        """Yield the parts as they are read: Django would first read the whole file."""
        if self.is_async:
            async for part in super().__aiter__():
                yield part
            return
        parts = iter(self.streaming_content)
        while (part := await sync_to_async(next)(parts, None)) is not None:
            yield part


def media_type(content_type):
    """Return a content type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def is_picture(content_type):
    """Return whether a page may show this content type as a picture."""
    return media_type(content_type) in PICTURES


def body_of(response, name):
    """Return the HTTP response with the body of a Response.

    ``name`` is the name of the download, without an ending: the content type gives that.
    Raises Http404 if there is no body, or if its file is gone.
    """
    if response is None or not response.content_type:
        raise Http404("There is no response.")
    name += mimetypes.guess_extension(media_type(response.content_type), strict=False) or ""
    if response.file:
        return _guarded(_Streamed(_opened(response.file)), response.content_type, name)
    if response.data is None:
        raise Http404("There is no response.")
    return _guarded(HttpResponse(response.body), response.content_type, name)


def file_of(response, number):
    """Return the HTTP response with published file ``number``, from 0. Raises Http404."""
    files = [] if response is None else documents.files(response)
    if number >= len(files):
        raise Http404("There is no such file.")
    entry = files[number]
    return _guarded(_Streamed(_opened(entry["path"])), entry["content_type"], entry["name"])


def _opened(path):
    try:
        return storages[settings.STORAGE].open(path)
    except (OSError, ValueError) as error:
        raise Http404("The file is not in the storage of this server, or not any more.") from error


def _guarded(answer, content_type, name):
    if not _CONTENT_TYPE.fullmatch(content_type):
        content_type = _UNKNOWN
    # A handler may publish under any name; a client must not be told a folder.
    name = "".join(c for c in name if c.isprintable()).replace("\\", "/").rpartition("/")[2]
    name = name.strip(" .") or "file"
    is_shown = media_type(content_type) in _SHOWN
    answer["Content-Type"] = content_type
    answer["Content-Disposition"] = content_disposition_header(not is_shown, name)
    answer["X-Content-Type-Options"] = "nosniff"
    answer["Content-Security-Policy"] = "default-src 'none'; sandbox"
    answer["Cross-Origin-Resource-Policy"] = "same-origin"
    answer["Cache-Control"] = "private, no-store"
    return answer

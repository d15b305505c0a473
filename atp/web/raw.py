"""Send raw output of handlers over HTTP, but never as a page of this site (guarantee G14).

The output may be HTML or SVG with a script, and the user who opens it is logged in to this site.
So the browser may show only pictures, plain text and JSON, and must download everything else.
Several headers ensure this, because some browsers know only some of the headers.
"""

import mimetypes
import re
from collections.abc import AsyncIterator
from typing import Any

from asgiref.sync import sync_to_async
from django.core.files.storage import storages
from django.http import FileResponse, Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header

from ..conf import settings
from ..models import Response
from ..reports import documents

PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})
_SHOWN = PICTURES | {"text/plain", "application/json"}
_WORD = r"[\w.+-]+"
_VALUE = r"(?:\"[ -!#-\[\]-~]*\"|[\w.+:/-]+)"
_CONTENT_TYPE = re.compile(rf"{_WORD}/{_WORD}(?:\s*;\s*{_WORD}={_VALUE})*", re.ASCII)
_UNKNOWN = "application/octet-stream"


class _StreamedFile(FileResponse):
    """A response that sends a file in parts, under WSGI and ASGI."""

    # In bytes.
    block_size = 2**18

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield each part of the file as soon as it is read. Django would read all parts first."""
        if self.is_async:
            async for part in super().__aiter__():
                yield part
            return
        parts: Any = iter(self.streaming_content)  # type: ignore[arg-type]
        while (part := await sync_to_async(next)(parts, None)) is not None:  # type: ignore[call-arg]
            yield part


def media_type(content_type: str) -> str:
    """Return a content type in lower case and without parameters."""
    return content_type.partition(";")[0].strip().lower()


def is_picture(content_type: str) -> bool:
    """Return True if pages may show content of this type as a picture."""
    return media_type(content_type) in PICTURES


def response_with_body(response: Response | None, name: str) -> HttpResponseBase:
    """Return the HTTP response with the body of a handler's Response.

    ``name`` is the file name of the download, without the extension, which follows from the content
    type. Raises Http404 if the Response has no body, or if its file no longer exists.
    """
    if response is None or not response.content_type:
        raise Http404("There is no response.")
    name += mimetypes.guess_extension(media_type(response.content_type), strict=False) or ""
    if response.file:
        return _add_headers(_StreamedFile(_open_file(response.file)), response.content_type, name)
    if response.data is None:
        raise Http404("There is no response.")
    return _add_headers(HttpResponse(response.body), response.content_type, name)


def response_with_file(response: Response | None, number: int) -> HttpResponseBase:
    """Return the HTTP response with one of the files that a handler published.

    ``number`` is the place of the file among them, from 0. Raises Http404 if there is no such file.
    """
    files = [] if response is None else documents.files(response)
    if number >= len(files):
        raise Http404("There is no such file.")
    entry = files[number]
    answer = _StreamedFile(_open_file(entry["path"]))
    return _add_headers(answer, entry["content_type"], entry["name"])


def _open_file(path: str) -> Any:
    try:
        return storages[settings.STORAGE].open(path)
    except (OSError, ValueError) as error:
        raise Http404(
            "The file is not in this server's storage. It may have been deleted."
        ) from error


def _add_headers(answer: HttpResponseBase, content_type: str, name: str) -> HttpResponseBase:
    if not _CONTENT_TYPE.fullmatch(content_type):
        content_type = _UNKNOWN
    # A handler may publish under any name. The client must not learn the folder.
    name = "".join(c for c in name if c.isprintable()).replace("\\", "/").rpartition("/")[2]
    name = name.strip(" .") or "file"
    is_shown = media_type(content_type) in _SHOWN
    answer["Content-Type"] = content_type
    answer["Content-Disposition"] = content_disposition_header(not is_shown, name) or ""
    answer["X-Content-Type-Options"] = "nosniff"
    answer["Content-Security-Policy"] = "default-src 'none'; sandbox"
    answer["Cross-Origin-Resource-Policy"] = "same-origin"
    answer["Cache-Control"] = "private, no-store"
    return answer

"""Raw output of handlers over HTTP; a browser never shows it as a page of this site (G14).

A response may be HTML or SVG with a script, and the user who opens it is logged in on this site.
So the browser shows only pictures, plain text and JSON, and downloads everything else. Three
headers say so, for browsers that know only some of them.
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
    """The response with a file. It is sent in parts, under ASGI too."""

    # In bytes.
    block_size = 2**18

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield each part when it is read; Django would read the whole file first."""
        if self.is_async:
            async for part in super().__aiter__():
                yield part
            return
        parts: Any = iter(self.streaming_content)  # type: ignore[arg-type]
        while (part := await sync_to_async(next)(parts, None)) is not None:  # type: ignore[call-arg]
            yield part


def media_type(content_type: str) -> str:
    """Return a content type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def is_picture(content_type: str) -> bool:
    """Return True if a page may show this content type as a picture."""
    return media_type(content_type) in PICTURES


def response_with_body(response: Response | None, name: str) -> HttpResponseBase:
    """Return the HTTP response with the body of a Response.

    ``name`` is the name of the download; the content type adds the ending.
    Raises Http404 if the Response has no body, or if its file no longer exists.
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
    """Return the HTTP response with the published file ``number``, from 0. Raises Http404."""
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
            "The storage of this server does not, or no longer, have the file."
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

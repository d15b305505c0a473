"""Parsers and the renderer of the API: JSON only, whatever the project's settings say."""

import json
from types import SimpleNamespace

from django.conf import settings as project
from django.core.exceptions import RequestDataTooBig
from django.utils.http import parse_header_parameters
from rest_framework.exceptions import NotAcceptable, ParseError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer

from ..exceptions import NotSerializable
from ..payload import tagged_json
from ..reports import documents

JSON = "application/json"
PROBLEM = "application/problem+json"
MERGE_PATCH = "application/merge-patch+json"
BYTES = "application/octet-stream"
_LONGEST_TYPE = 256


class JSONRenderer(BaseRenderer):
    media_type = JSON
    format = "json"
    charset = None

    def render(self, data, accepted_media_type=None, renderer_context=None):
        """Return the document as one line of JSON in UTF-8."""
        text = json.dumps(data, default=documents.plain, ensure_ascii=False, allow_nan=False) + "\n"
        # UTF-8 cannot encode half of a surrogate pair: write its JSON escape instead.
        return text.encode(errors="backslashreplace")


class JSONParser(BaseParser):
    """A parser of strict JSON in UTF-8, up to DATA_UPLOAD_MAX_MEMORY_SIZE bytes."""

    media_type = JSON

    def parse(self, stream, media_type=None, parser_context=None):
        """Return the parsed body. Raises ParseError, or RequestDataTooBig."""
        try:
            return tagged_json.parse(_read(stream, parser_context["request"]).decode())
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise ParseError(
                f"The body is not UTF-8: byte {error.start} is 0x{byte:02x}."
            ) from None
        except NotSerializable as error:
            raise ParseError(f"The body is {error}.") from None


class MergePatchParser(JSONParser):
    """A parser of JSON Merge Patch (RFC 7396) for ``PATCH``: absent fields stay unchanged."""

    media_type = MERGE_PATCH


def _read(stream, request):
    limit = project.DATA_UPLOAD_MAX_MEMORY_SIZE
    if limit is None:
        return stream.read()
    told = request.META.get("CONTENT_LENGTH", "")
    is_too_large = told.isdecimal() and int(told) > limit
    # Content-Length may be wrong or missing: read at most one byte above the limit.
    data = b"" if is_too_large else stream.read(limit + 1)
    if is_too_large or len(data) > limit:
        raise RequestDataTooBig(f"The body may have {limit} bytes at most.")
    return data


class Negotiation(DefaultContentNegotiation):
    """Content negotiation by headers only: no query parameter selects a format."""

    settings = SimpleNamespace(URL_FORMAT_OVERRIDE=None)

    def select_renderer(self, request, renderers, format_suffix=None):
        """Return the only renderer, also for clients that accept problem documents alone."""
        try:
            return super().select_renderer(request, renderers, format_suffix)
        except NotAcceptable:
            if not any(_is_problem(accepted) for accepted in self.get_accept_list(request)):
                raise
            return renderers[0], renderers[0].media_type

    def select_parser(self, request, parsers):
        """Return the parser for exactly this content type in UTF-8; None if there is none."""
        if len(request.content_type) > _LONGEST_TYPE:
            return None
        try:
            name, parameters = parse_header_parameters(request.content_type)
        except ValueError:
            return None
        if parameters.get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
            return None
        if name == MERGE_PATCH and request.method != "PATCH":
            return None
        return next((parser for parser in parsers if parser.media_type == name), None)


def _is_problem(accepted):
    try:
        return parse_header_parameters(accepted)[0] == PROBLEM
    except ValueError:  # a parameter in an encoding that does not exist
        return False


class AnyAccept(Negotiation):
    """Content negotiation for raw bodies: their type is not known before, so accept any."""

    def select_renderer(self, request, renderers, format_suffix=None):
        return renderers[0], renderers[0].media_type

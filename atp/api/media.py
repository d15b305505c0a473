"""JSON in and JSON out, whatever the project's settings say of either."""

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
        """Return the document as a line of UTF-8."""
        text = json.dumps(data, default=documents.plain, ensure_ascii=False, allow_nan=False) + "\n"
        # Half of a surrogate pair, which UTF-8 cannot say, becomes the escape that JSON has for it.
        return text.encode(errors="backslashreplace")


class JSONParser(BaseParser):
    """Strict JSON in UTF-8, no more of it than Django takes into memory."""

    media_type = JSON

    def parse(self, stream, media_type=None, parser_context=None):
        """Return what the body says. Raises ParseError, or RequestDataTooBig."""
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
    """RFC 7396, for ``PATCH``: to these fields, what it leaves out stays as it is."""

    media_type = MERGE_PATCH


def _read(stream, request):
    limit = project.DATA_UPLOAD_MAX_MEMORY_SIZE
    if limit is None:
        return stream.read()
    told = request.META.get("CONTENT_LENGTH", "")
    is_too_large = told.isdecimal() and int(told) > limit
    # What a client tells of the length need not be true, or may be missing.
    data = b"" if is_too_large else stream.read(limit + 1)
    if is_too_large or len(data) > limit:
        raise RequestDataTooBig(f"The body may have {limit} bytes at most.")
    return data


class Negotiation(DefaultContentNegotiation):
    """By the headers only: no parameter of the query stands for a format."""

    settings = SimpleNamespace(URL_FORMAT_OVERRIDE=None)

    def select_renderer(self, request, renderers, format_suffix=None):
        """Return the one renderer; who accepts problem documents gets these, and JSON."""
        try:
            return super().select_renderer(request, renderers, format_suffix)
        except NotAcceptable:
            if not any(_is_problem(accepted) for accepted in self.get_accept_list(request)):
                raise
            return renderers[0], renderers[0].media_type

    def select_parser(self, request, parsers):
        """Return the parser of exactly this type, in UTF-8; None if there is none."""
        if len(request.content_type) > _LONGEST_TYPE:
            return None
        name, parameters = parse_header_parameters(request.content_type)
        if parameters.get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
            return None
        if name == MERGE_PATCH and request.method != "PATCH":
            return None
        return next((parser for parser in parsers if parser.media_type == name), None)


def _is_problem(accepted):
    return parse_header_parameters(accepted)[0] == PROBLEM


class AnyAccept(Negotiation):
    """For bodies that are what they are: nobody can tell in advance whether they fit."""

    def select_renderer(self, request, renderers, format_suffix=None):
        return renderers[0], renderers[0].media_type

"""The OpenAPI document: the operations that views declare, with the errors of each."""

from copy import deepcopy
from http import HTTPStatus

from drf_spectacular.extensions import OpenApiSerializerExtension, OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.fields import empty

from . import fields
from .fields import Strict, Value
from .media import BYTES, JSON, PROBLEM
from .queries import Query, page_of

# The error statuses of any operation; of one that writes; of one with a parameter in its path; of
# one with a body.
_ALWAYS, _WRITING, _NAMED, _BODY = (400, 401, 403, 406, 429, 503), (412, 413, 415), (404,), (422,)


class ProblemErrorSerializer(serializers.Serializer):
    field = fields.text("Place in the body or the query, as `[3].inputs.azimuth`.")
    detail = fields.text()


class ProblemSerializer(serializers.Serializer):
    """A problem document of RFC 9457."""

    type = fields.text("The kind of problem, as a URN: `urn:atp:problem:…`.")
    title = fields.text("The kind in words.")
    status = serializers.IntegerField(min_value=400, max_value=599)
    detail = fields.text("What is wrong with this request.")
    instance = fields.text("Path of the request.")
    errors = ProblemErrorSerializer(many=True, required=False)


def operation(
    id,
    summary,
    *needs,
    answer=empty,
    description="",
    query=Query,
    body=None,
    problems=(),
    headers=(),
):
    """Declare a method of a view as an operation, with the permissions that it ``needs``.

    ``answer`` is the serializer of the response, or a dict of them by status. By default it
    is that of the view, in pages for ``list``. ``problems`` are the error statuses beside
    those that any operation of this form has.
    """
    responses = answer if answer is empty or isinstance(answer, dict) else {200: answer}

    def decorate(method):
        # ``extend_schema`` derives from this class, not from the project's default.
        method.schema = Schema
        method.needs, method.query, method.body, method.problems = needs, query, body, problems
        return extend_schema(
            operation_id=id,
            summary=summary,
            description=description,
            parameters=[query, *headers],
            request=body and {JSON: body},
            responses=responses,
            filters=False,
        )(method)

    return decorate


def named(name, description, **schema):
    """Declare a parameter of the path."""
    return OpenApiParameter(
        name, schema, OpenApiParameter.PATH, description=description, required=True
    )


def header(name, description, status):
    """Declare a header of the responses with this status."""
    where = OpenApiParameter.HEADER
    return OpenApiParameter(name, str, where, description=description, response=[status])


def one_or_many(item, **more):
    return {"oneOf": [item, {"type": "array", "items": item, **more}]}


# A raw body of any type. A generated client takes the first of these types that it knows, and
# reads bytes.
RAW = {
    (200, BYTES): OpenApiTypes.BINARY,
    (200, JSON): {"description": "Any JSON."},
    (200, "*/*"): OpenApiTypes.BINARY,
}


class ValueExtension(OpenApiSerializerFieldExtension):
    target_class = Value
    match_subclasses = True

    def map_serializer_field(self, auto_schema, direction):
        return deepcopy(self.target.schema)


class StrictExtension(OpenApiSerializerExtension):
    target_class = Strict
    match_subclasses = True

    def map_serializer(self, auto_schema, direction):
        schema = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        return {"properties": {}, **schema, "additionalProperties": False}


class Schema(AutoSchema):
    def get_operation(self, *args):
        operation = super().get_operation(*args)
        method = self.view.operation
        needs = " and ".join(f"`{name}`" for name in method.needs)
        texts = [operation.get("description"), f"Permission: {needs}." if needs else ""]
        if any(texts):
            operation["description"] = "\n\n".join(filter(None, texts))
        possible = {
            *_ALWAYS,
            *(() if self.method == "GET" else _WRITING),
            *(_NAMED if "{" in self.path else ()),
            *(_BODY if method.body else ()),
            *method.problems,
        }
        schema = self.resolve_serializer(ProblemSerializer, "response").ref
        content = {PROBLEM: {"schema": schema}}
        problems = {str(status): {"content": content} for status in sorted(possible)}
        # Health has a 503 of its own.
        for status in problems.keys() & operation["responses"].keys():
            operation["responses"][status]["content"] |= content
        operation["responses"] = problems | operation["responses"]
        for status, response in operation["responses"].items():
            response["description"] = response.get("description") or HTTPStatus(int(status)).phrase
        return operation

    def get_description(self):
        return ""

    def get_response_serializers(self):
        serializer = self.view.get_serializer_class()
        return {200: page_of(serializer) if self.view.action == "list" else serializer}

    def get_tags(self):
        return [self.view.tag]

    def get_override_parameters(self):
        return [each for each in self.view.named if f"{{{each.name}}}" in self.path]

    def _get_request_for_media_type(self, serializer, direction="request"):
        if serializer is None:
            return None, False
        item = self.resolve_serializer(serializer, direction).ref
        if serializer.max_items:
            item = one_or_many(item, minItems=1, maxItems=serializer.max_items)
        return item, serializer.is_needed

    def _is_list_view(self, serializer=None):
        return False

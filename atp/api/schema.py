"""The OpenAPI document: what :func:`operation` says of a method of a view, and how it may fail."""

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

# How any operation may fail; one that writes; one at an address that names something; one with
# a body.
_ALWAYS, _WRITING, _NAMED, _BODY = (400, 401, 403, 406, 429, 503), (412, 413, 415), (404,), (422,)


class ProblemErrorSerializer(serializers.Serializer):
    field = fields.text("Where in the body or the query, as `[3].inputs.azimuth`.")
    detail = fields.text()


class ProblemSerializer(serializers.Serializer):
    """RFC 9457."""

    type = fields.text("Which kind of problem, `urn:atp:problem:…`.")
    title = fields.text("The kind in words.")
    status = serializers.IntegerField(min_value=400, max_value=599)
    detail = fields.text("What is wrong here.")
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
    """Say of a method of a view which permissions it needs, and what it takes and gives.

    ``answer`` is what it answers with by status, unless that is a list of what the view's
    serializer renders, or one of them. ``problems`` are the statuses with which it may fail,
    beside those that go without saying.
    """
    responses = answer if answer is empty or isinstance(answer, dict) else {200: answer}

    def decorate(method):
        # On which ``extend_schema`` builds, whatever the project has as its default.
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
    """Return a parameter of the path."""
    return OpenApiParameter(
        name, schema, OpenApiParameter.PATH, description=description, required=True
    )


def header(name, description, status):
    """Return a header of the answers with a status."""
    where = OpenApiParameter.HEADER
    return OpenApiParameter(name, str, where, description=description, response=[status])


def one_or_many(item, **more):
    return {"oneOf": [item, {"type": "array", "items": item, **more}]}


# A body that is what it is. Clients that are generated read the first of these that they know,
# as bytes.
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

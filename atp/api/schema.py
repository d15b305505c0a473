"""The OpenAPI document, from the Operations: nothing is guessed from the views."""

from http import HTTPStatus

from drf_spectacular.extensions import OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from .body import MOST_ITEMS
from .fields import Plain
from .media import JSON, PROBLEM
from .serializers import ProblemSerializer

# Where any operation may end.
_ALWAYS = (400, 401, 403, 406, 429, 503)


class PlainExtension(OpenApiSerializerFieldExtension):
    target_class = Plain

    def map_serializer_field(self, auto_schema, direction):
        return {"oneOf": list(self.target.possible)}


class Schema(AutoSchema):
    @property
    def operation(self):
        return self.view.operations[self.method]

    def get_operation_id(self):
        return self.operation.id

    def get_summary(self):
        return self.operation.summary

    def get_description(self):
        operation = self.operation
        needed = " and ".join(f"`{name}`" for name in operation.permissions)
        told = [operation.description, f"Permission: {needed}." if needed else ""]
        return "\n\n".join(filter(None, told))

    def get_tags(self):
        return [self.view.tag]

    def get_override_parameters(self):
        operation = self.operation
        path = [_parameter(each, OpenApiParameter.PATH) for each in self.view.path_parameters]
        query = [_parameter(each, OpenApiParameter.QUERY) for each in operation.parameters]
        headers = [
            OpenApiParameter(
                name,
                str,
                OpenApiParameter.HEADER,
                description=description,
                response=[status],
            )
            for status, answer in operation.answers.items()
            for name, description in answer.headers.items()
        ]
        return [*path, *query, *headers]

    def get_request_serializer(self):
        if self.operation.body is None:
            return None
        item = self.resolve_serializer(self.operation.body, "request")
        item.schema["additionalProperties"] = False
        if not self.operation.takes_many:
            return {JSON: item.ref}
        items = {"type": "array", "items": item.ref, "minItems": 1, "maxItems": MOST_ITEMS}
        return {JSON: {"oneOf": [item.ref, items]}}

    def get_response_serializers(self):
        operation = self.operation
        found = {}
        for status, answer in operation.answers.items():
            found |= self._answer(status, answer)
        for status in sorted({*_ALWAYS, *operation.problems} - operation.answers.keys()):
            description = HTTPStatus(status).phrase
            found[status, PROBLEM] = OpenApiResponse(ProblemSerializer, description=description)
        return found

    def _answer(self, status, answer):
        if answer.serializer is None:
            anything = OpenApiResponse({"description": "Any JSON."}, answer.description)
            return {(status, JSON): anything, (status, "*/*"): OpenApiTypes.BINARY}
        if answer.is_array:
            item = self.resolve_serializer(answer.serializer, "response").ref
            body, media = {"oneOf": [item, {"type": "array", "items": item}]}, JSON
        else:
            body, media = answer.serializer, JSON
        return {(status, media): OpenApiResponse(body, description=answer.description)}

    def get_auth(self):
        found = super().get_auth()
        return [*found, {}] if self.operation.is_open else found

    def _get_request_body(self, *args, **kwargs):
        body = super()._get_request_body(*args, **kwargs)
        return body and {**body, "required": True}

    def _is_list_view(self, serializer=None):
        return False


def _parameter(parameter, location):
    schema = dict(parameter.schema)
    return OpenApiParameter(
        parameter.name,
        schema,
        location,
        description=parameter.description,
        required=location == OpenApiParameter.PATH,
    )

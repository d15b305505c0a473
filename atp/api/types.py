"""The Types, registered or only declared."""

from rest_framework.response import Response

from .. import documents
from ..conf import did_you_mean
from ..exceptions import UnknownType
from ..web import permissions
from .base import View
from .operation import TYPE_IDENTIFIER, Answer, Operation
from .serializers import TypeSerializer, page_of


class TypesView(View):
    tag = "types"
    operations = {
        "GET": Operation(
            id="list_types",
            summary="All Types, by identifier",
            permissions=(permissions.VIEW_TYPE,),
            answers={200: Answer(description="The Types.", serializer=page_of(TypeSerializer))},
        )
    }

    def get(self, request):
        return self.whole(documents.types())


class TypeView(View):
    tag = "types"
    path_parameters = (TYPE_IDENTIFIER,)
    operations = {
        "GET": Operation(
            id="get_type",
            summary="One Type",
            permissions=(permissions.VIEW_TYPE,),
            answers={200: Answer(description="The Type.", serializer=TypeSerializer)},
            problems=(404,),
        )
    }

    def get(self, request, identifier):
        types = {document["identifier"]: document for document in documents.types()}
        if identifier not in types:
            hint = did_you_mean(identifier, types)
            raise UnknownType(f"There is no Type {identifier!r}.{hint}")
        return Response(types[identifier])

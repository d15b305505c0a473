"""Verbs on all Instances that match, as ``POST matching/redrive``."""

from rest_framework.decorators import action
from rest_framework.response import Response

from ...verbs.table import MATCHING, VERBS
from ...web.permissions import VIEW_INSTANCE
from ..base import ViewSet, body_of
from ..schema import operation
from .outcomes import DoneSerializer, document


class MatchingViewSet(ViewSet):
    tag = "matching"
    serializer_class = DoneSerializer


def _action(verb):
    def perform(self, request, **kwargs):
        return Response(document(self, self.perform(verb, None, **self.values())))

    perform.__name__ = f"perform_{verb.id}"
    says = operation(
        f"{verb.id}_matching",
        verb.label,
        VIEW_INSTANCE,
        *verb.needs,
        description=verb.explanation,
        body=body_of(verb, "Matching"),
        answer=DoneSerializer,
        problems=(404, 409),
    )
    extra = action(detail=False, methods=["post"], url_path=verb.name, url_name=verb.name)(perform)
    return says(extra)


for _verb in VERBS[MATCHING].values():
    setattr(MatchingViewSet, f"perform_{_verb.id}", _action(_verb))

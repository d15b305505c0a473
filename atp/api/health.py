"""For probes: whether the queue is being worked on."""

from django.contrib.auth.models import AnonymousUser
from django.db import Error
from rest_framework.response import Response

from .. import health, waiting
from ..web import permissions
from .base import View
from .operation import Answer, Operation
from .serializers import HealthSerializer


class HealthView(View):
    """Says ok or failing to anybody, and more to who may look at daemons (G14)."""

    throttle_classes = ()
    tag = "health"
    operations = {
        "GET": Operation(
            id="get_health",
            summary="Whether the queue is being worked on",
            description="It is failing if the database does not answer or has not been migrated, "
            "or if work is due and no daemon with a live lease serves its Type, or is in the hands "
            "of a lost one with none alive to take it over, or if something is as it should "
            "never be: due for long while an idle daemon serves it, or held by who is gone. "
            "Anybody gets "
            f"`status`; the rest needs the permission `{permissions.VIEW_DAEMON}`.",
            answers={
                200: Answer(description="All is well.", serializer=HealthSerializer),
                503: Answer(description="Something is wrong.", serializer=HealthSerializer),
            },
            is_open=True,
        )
    }

    def perform_authentication(self, request):
        try:
            super().perform_authentication(request)
        except Error:  # the very thing that is asked about
            request.user = AnonymousUser()

    def check_permissions(self, request):
        """Nobody is refused."""

    def get(self, request):
        found = health.health()
        told = {"status": found.status}
        if _may_know(request.user):
            told |= {
                "time": found.time,
                "database": found.database,
                "daemons": found.daemons or None,
                "oldest_due": health.oldest_due() if found.database else None,
                "problems": found.problems,
                "notes": waiting.notes(found.time) if found.database else (),
            }
        return Response(told, status=200 if found.status == health.OK else 503)


def _may_know(user):
    try:
        return user is not None and not permissions.lacking(user, [permissions.VIEW_DAEMON])
    except Error:
        return False

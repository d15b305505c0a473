"""Probes: does this web process answer, do daemons work on the queue, does the code fit it?"""

from django.contrib.auth.models import AnonymousUser
from django.db import Error
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers as rest
from rest_framework.permissions import AllowAny
from rest_framework.response import Response

from .. import queue
from ..reports import health
from ..reports.deploys import pending
from ..reports.deploys.findings import Kind
from ..reports.explaining import notes
from ..web import permissions
from . import fields
from .base import View
from .queries import TypeQuery
from .schema import operation


class DaemonCountsSerializer(rest.Serializer):
    alive = fields.count()
    late = fields.count()
    lost = fields.count()


class LivenessSerializer(rest.Serializer):
    status = fields.word(("ok",))


class HealthSerializer(rest.Serializer):
    status = fields.word(("ok", "failing"))
    time = fields.time("By the database's clock.", absent=True, null=True)
    database = fields.flag("Whether it answers and has been migrated.", absent=True)
    daemons = DaemonCountsSerializer(required=False, allow_null=True)
    oldest_due = fields.time(
        "When the Task was due that has been waiting longest.", absent=True, null=True
    )
    problems = fields.texts("What is wrong, a sentence each.")
    notes = fields.texts("What is held or limited as somebody wants it, and how much of it is due.")


class FindingSerializer(rest.Serializer):
    kind = fields.word(Kind.values, "What was found, as data.")
    type = fields.text("Identifier of the Type.")
    schedule = fields.text("Identifier of the schedule that it is about; else empty.")
    count = fields.count("The number of Instances; null if it is about none.", null=True)
    instance = rest.UUIDField(allow_null=True, help_text="One of these Instances.")
    since = fields.time("When the first of them was enqueued.", null=True)
    fails = fields.flag("Whether it cannot run under this code; else it is a note.")
    what = fields.text("The kind, in words.")
    why = fields.text("What does not fit.")


class DifferenceSerializer(rest.Serializer):
    type = fields.text("Identifier of the Type.")
    here = fields.text("The signature of this code.")
    there = fields.text("The signature of the daemon.")
    daemon = fields.text("Host and pid of the daemon.")
    release = fields.text("The release that the daemon runs; empty if it has none.")


class PendingSerializer(rest.Serializer):
    fits = fields.flag("Whether all that waits can run under this code.")
    time = fields.time("By the database's clock.")
    looked_at = fields.count("The number of live Instances.")
    findings = FindingSerializer(many=True)
    differences = DifferenceSerializer(
        many=True, help_text="Types of which a living daemon has a handler that takes other inputs."
    )


class LivenessView(View):
    """Answer ok, without a query to the database and without a login."""

    authentication_classes = ()
    permission_classes = (AllowAny,)
    throttle_classes = ()
    tag = "health"
    action = "get"

    @operation(
        "get_liveness",
        "Whether this web process answers",
        description="For load balancers. It knows of nothing but the process that answers: "
        "the database is not asked, and no queue makes it fail.",
        answer=LivenessSerializer,
    )
    def get(self, request):
        return Response({"status": health.OK})


class HealthView(View):
    """Answer ok or failing to anybody, with details for users who may view daemons (G14)."""

    permission_classes = (AllowAny,)
    throttle_classes = ()
    tag = "health"
    action = "get"
    # False if the database failed during the login, so that the user is not known.
    is_known = True

    def perform_authentication(self, request):
        try:
            super().perform_authentication(request)
        except Error:  # the probe reports this failure
            request.user = AnonymousUser()
            self.is_known = False

    @operation(
        "get_health",
        "Whether the queue is being worked on",
        description="For alerting; a load balancer asks `health/live`. "
        "It is failing if the database does not answer or has not been migrated, "
        "or if work is due and no daemon with a live lease serves its Type, or is in the hands "
        "of a lost one with none alive to take it over, or if something is as it should "
        "never be: due for long while an idle daemon serves it, or held by who is gone. "
        "With `type` only the work of one Type is looked at, which takes the permission "
        f"`{permissions.VIEW_TYPE}`. Anybody gets "
        f"`status`; the rest needs the permission `{permissions.VIEW_DAEMON}`.",
        query=TypeQuery,
        answer={
            200: OpenApiResponse(HealthSerializer, "All is well."),
            503: OpenApiResponse(HealthSerializer, "Something is wrong."),
        },
        problems=(404,),
    )
    def get(self, request):
        type = self.query.get("type")
        if type is not None:
            if not self.is_known:
                return Response({"status": health.FAILING}, status=503)
            self.require(permissions.VIEW_TYPE)
            queue.get_type(type)
        found = health.health(type)
        told = {"status": found.status}
        if _may_know(request.user):
            told |= {
                "time": found.time,
                "database": found.database,
                "daemons": found.daemons or None,
                "oldest_due": health.oldest_due(type) if found.database else None,
                "problems": found.problems,
                "notes": notes.notes(found.time) if found.database else (),
            }
        return Response(told, status=200 if found.status == health.OK else 503)


class PendingView(View):
    """Answer with the live Instances that do not fit the code of this process."""

    throttle_classes = ()
    tag = "health"
    action = "get"

    @operation(
        "get_pending",
        "Whether all that waits fits the code of this process",
        permissions.VIEW_DAEMON,
        permissions.OPERATE,
        description="For a deploy: to be asked of a process that runs the new code, before the "
        "switch. It reads the inputs of all that is live, which takes some seconds for a "
        "million, and writes nothing. Pickled inputs are not opened: "
        "`manage.py atp check --pending --deep` does that.",
        answer={
            200: OpenApiResponse(PendingSerializer, "All that waits can run."),
            503: OpenApiResponse(PendingSerializer, "Something cannot run under this code."),
        },
    )
    def get(self, request):
        document = pending.document(pending.pending())
        return Response(document, status=200 if document["fits"] else 503)


def _may_know(user):
    try:
        return user is not None and not permissions.lacking(user, [permissions.VIEW_DAEMON])
    except Error:
        return False

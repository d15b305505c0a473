"""Probes that report the health of the web process and of the queue.

One tells whether this web process answers, one whether daemons work on the queue, and one whether
the live Instances can run under this process's code.
"""

from collections.abc import Iterable
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.db import Error
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers as rest
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from .. import queue
from ..models import Type
from ..reports import health, overview, pending
from ..reports.health import Severity
from ..reports.pending import Kind
from ..web import permissions
from ..web.permissions import EVERYTHING, look_up, require
from . import schema
from .base import View
from .instances import HelpSerializer
from .schema import TypeQuery, endpoint


class DaemonCountsSerializer(rest.Serializer):
    alive = schema.count()
    late = schema.count()
    lost = schema.count()


class LivenessSerializer(rest.Serializer):
    status = schema.word(("ok",))


class HealthSerializer(rest.Serializer):
    status = schema.word(("ok", "failing"))
    time = schema.time("By the database's clock.", absent=True, null=True)
    database = schema.flag("Whether the database answers and has been migrated.", absent=True)
    daemons = DaemonCountsSerializer(required=False, allow_null=True)
    oldest_due = schema.time(
        "The earliest due time of all due Tasks; null if none is due.", absent=True, null=True
    )
    problems = schema.texts("What is wrong, a sentence each.")
    warnings = schema.texts("What somebody should look at; no warning makes the status failing.")
    notes = schema.texts("Gates and limits that are set, and the due Tasks that wait for them.")


class QueueProblemSerializer(rest.Serializer):
    code = schema.text("The kind of problem, as a word for programs.")
    severity = schema.word(
        Severity, "A failing problem makes `health` fail. A note is about what somebody has set."
    )
    sentence = schema.text("What is wrong.")
    since = schema.time("When it began, if that is known.", null=True)
    types = rest.ListField(child=schema.text(), help_text="The Types that it affects.")
    collection = schema.text("The lane of the Type; null: the whole Type.", null=True)
    due = schema.count("Due Tasks that it delays; null if they were not counted.", null=True)
    due_more = schema.flag("Whether there are more due Tasks than that.")
    kind = schema.text("The kind of its subject, such as daemon; empty without one.")
    name = schema.text("The identifier or uuid of its subject; empty without one.")
    daemon = schema.text("Host and pid of the daemon in the sentence; empty without one.")
    error = schema.text("The newest error line; empty without one, or if you may not see it.")
    helps = HelpSerializer(allow_null=True, help_text="What would resolve it, if that is known.")


class ProblemsSerializer(rest.Serializer):
    time = schema.time("By the database's clock.")
    problems = QueueProblemSerializer(many=True, help_text="The worst first.")


class FindingSerializer(rest.Serializer):
    kind = schema.word(Kind.values, "The kind of finding, as a word for programs.")
    type = schema.text("Identifier of the Type.")
    schedule = schema.text("Identifier of the schedule that the finding is about; else empty.")
    count = schema.count("The number of Instances; null if it is about none.", null=True)
    instance = rest.UUIDField(allow_null=True, help_text="One of these Instances.")
    since = schema.time("When the first of them was enqueued.", null=True)
    fails = schema.flag("Whether something cannot run under this code; if not, it is a note.")
    what = schema.text("The kind, in words.")
    why = schema.text("What does not fit.")


class DifferenceSerializer(rest.Serializer):
    type = schema.text("Identifier of the Type.")
    here = schema.text("The signature of this code.")
    there = schema.text("The signature of the daemon.")
    daemon = schema.text("Host and pid of the daemon.")
    release = schema.text("The release that the daemon runs; empty if it has none.")


class PendingSerializer(rest.Serializer):
    fits = schema.flag("Whether all live Instances and all schedules can run under this code.")
    time = schema.time("By the database's clock.")
    looked_at = schema.count("The number of live Instances.")
    findings = FindingSerializer(many=True)
    differences = DifferenceSerializer(
        many=True, help_text="Types whose handler takes other inputs on a living daemon than here."
    )


class LivenessView(View):
    """The probe that answers "ok" without a login and without a database query."""

    authentication_classes = ()
    permission_classes = (AllowAny,)
    throttle_classes = ()
    tag = "health"
    action = "get"

    @endpoint(
        "get_liveness",
        "Whether this web process answers",
        description="For load balancers. It checks only the process that answers: it does not ask "
        "the database, and no state of the queue makes it fail.",
        answer=LivenessSerializer,
    )
    def get(self, request: Request) -> Response:
        return Response({"status": health.OK})


class HealthView(View):
    """The probe that answers "ok" or "failing" to anybody.

    Only users who may view daemons get the details (guarantee G14).
    """

    permission_classes = (AllowAny,)
    throttle_classes = ()
    tag = "health"
    action = "get"
    # False if the user is unknown because the database failed during the login.
    is_known = True

    def perform_authentication(self, request: Request) -> None:
        try:
            super().perform_authentication(request)
        except Error:  # the probe reports this failure
            request.user = AnonymousUser()
            self.is_known = False

    @endpoint(
        "get_health",
        "Whether the queue is being worked on",
        description="For alerting; a load balancer asks `health/live`. "
        "The status is failing if the database does not answer or has not been migrated; if work "
        "is due and no daemon with a live lease serves its Type; if a lost daemon holds work and "
        "no living one can take it over; or if the queue is inconsistent: work is due for long "
        "while an idle daemon serves it, or its holder has no row any more. "
        "With `type`, only the work of one Type is checked; this needs "
        f"`{permissions.VIEW_TYPE}`. Anybody gets "
        f"`status`; the rest needs `{permissions.VIEW_DAEMON}`.",
        query=TypeQuery,
        answer={
            200: OpenApiResponse(HealthSerializer, "All is well."),
            503: OpenApiResponse(HealthSerializer, "Something is wrong."),
        },
        problems=(404,),
    )
    def get(self, request: Request) -> Response:
        type = self.query.get("type")
        if type is not None:
            if not self.is_known:
                return Response({"status": health.FAILING}, status=503)
            self.require(permissions.VIEW_TYPE)
            look_up(
                request.user,
                lambda: queue.get_type(type),
                *(Type, type, permissions.VIEW_TYPE),
            )
        report = health.health(type)
        document: dict[str, Any] = {"status": report.status}
        if _may_see_details(request.user):
            document |= {
                "time": report.time,
                "database": report.database,
                "daemons": report.daemons or None,
                "oldest_due": health.oldest_due(type) if report.database else None,
                "problems": report.problems,
                "warnings": [],
                "notes": [],
            }
            if report.time:
                rows = overview.daemons()
                document["warnings"] = _sentences(health.warnings(rows, report.time))
                document["notes"] = _sentences(health.notes(report.time))
        return Response(document, status=200 if report.status == health.OK else 503)


def _sentences(problems: Iterable[health.QueueProblem]) -> list[str]:
    return [each.sentence for each in problems]


class ProblemsView(View):
    """The problems of the queue: the same list as on the overview page."""

    tag = "health"
    action = "get"

    @endpoint(
        "get_problems",
        "What is wrong, since when, whom it affects, and what helps",
        permissions.VIEW_INSTANCE,
        description="Unlike `health`, this also has warnings, and notes about gates and limits; "
        "the status is always 200. Problems of Types that you may not see are left out. Without "
        f"`{permissions.VIEW_DAEMON}`, no problem names a daemon.",
        answer=ProblemsSerializer,
    )
    def get(self, request: Request) -> Response:
        found = overview.overview(history=False)
        problems = health.problems_now(found, overview.daemons())
        visible = permissions.visible_problems(request.user, problems)
        return Response(
            {"time": found.time, "problems": [health.document(each) for each in visible]}
        )


class PendingView(View):
    """The probe that reports which live Instances and schedules do not fit this process's code."""

    throttle_classes = ()
    tag = "health"
    action = "get"

    @endpoint(
        "get_pending",
        "Whether all live Instances fit the code of this process",
        permissions.VIEW_DAEMON,
        permissions.OPERATE,
        description="For a deploy: ask a process that runs the new code, before the switch. It "
        "reads the inputs of all live Instances, which takes some seconds for a million, and "
        "writes nothing. Pickled inputs are not opened: "
        "`manage.py atp check --pending --deep` does that.",
        answer={
            200: OpenApiResponse(PendingSerializer, "Everything can run under this code."),
            503: OpenApiResponse(PendingSerializer, "Something cannot run under this code."),
        },
    )
    def get(self, request: Request) -> Response:
        require(request.user, EVERYTHING, permissions.VIEW_DAEMON, permissions.OPERATE)
        document = pending.document(pending.pending())
        return Response(document, status=200 if document["fits"] else 503)


def _may_see_details(user: Any) -> bool:
    try:
        return user is not None and permissions.holds(user, permissions.VIEW_DAEMON)
    except Error:
        return False

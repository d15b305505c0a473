"""The URLs of the API, which a project includes before the URLs of the pages.

For example: ``path("atp/api/", include("atp.api.urls"))``.
"""

from django.core.exceptions import ImproperlyConfigured

from . import missing

if missing():
    raise ImproperlyConfigured(missing())

from django.db import DEFAULT_DB_ALIAS
from django.db.transaction import non_atomic_requests
from django.urls import path, re_path
from rest_framework.routers import SimpleRouter

from ..conf import settings
from ..deadletters.api import ErrorViewSet, MatchingViewSet
from ..graphs.api import GraphViewSet
from ..schedules.api import ScheduleViewSet
from ..tailers.api import TailerViewSet
from .base import UnknownView
from .health import HealthView, LivenessView, PendingView, ProblemsView
from .instances import InstanceViewSet
from .resources import (
    DaemonViewSet,
    DownstreamViewSet,
    GateViewSet,
    LimitViewSet,
    TaskViewSet,
    TypeViewSet,
)

app_name = "atp_api"
_router = SimpleRouter(trailing_slash=False, use_regex_path=False)
for _viewset in (
    TypeViewSet,
    InstanceViewSet,
    TaskViewSet,
    GateViewSet,
    LimitViewSet,
    DownstreamViewSet,
    TailerViewSet,
    ScheduleViewSet,
    GraphViewSet,
    ErrorViewSet,
    MatchingViewSet,
    DaemonViewSet,
):
    _router.register(_viewset.tag, _viewset, basename=_viewset.tag)
_resources = [
    *_router.urls,
    path("health/live", LivenessView.as_view(), name="liveness"),
    path("health/pending", PendingView.as_view(), name="pending"),
    path("health", HealthView.as_view(), name="health"),
    path("problems", ProblemsView.as_view(), name="problems"),
]
# ATOMIC_REQUESTS must not apply to these views, because they wait, go on after a failed query, or
# read for a long time.
for _route in _resources:
    if _route.name in ("instances-detail", "liveness", "health", "pending"):
        for _alias in {DEFAULT_DB_ALIAS, settings.DATABASE}:
            non_atomic_requests(_alias)(_route.callback)
urlpatterns = [
    *_resources,
    re_path(
        r"^(?P<path>.*)\Z",
        UnknownView.as_view(known=tuple(str(route.pattern) for route in _resources)),
        name="unknown",
    ),
]

"""The URLs of OGC API – Processes. Include them with ``path("ogc/", include("atp.ogc.urls"))``."""

from django.core.exceptions import ImproperlyConfigured

from ..api import missing

if missing():
    raise ImproperlyConfigured(missing())

from django.db import DEFAULT_DB_ALIAS
from django.db.transaction import non_atomic_requests
from django.urls import path

from ..conf import settings
from .views import (
    ConformanceView,
    ExecutionView,
    JobsView,
    JobView,
    LandingView,
    OpenAPIView,
    OutputView,
    ProcessesView,
    ProcessView,
    ResultsView,
)

app_name = "atp_ogc"
urlpatterns = [
    path("", LandingView.as_view(), name="landing"),
    path("conformance", ConformanceView.as_view(), name="conformance"),
    path("api", OpenAPIView.as_view(), name="api"),
    path("processes", ProcessesView.as_view(), name="processes"),
    path("processes/<str:identifier>", ProcessView.as_view(), name="process"),
    path("processes/<str:identifier>/execution", ExecutionView.as_view(), name="execution"),
    path("jobs", JobsView.as_view(), name="jobs"),
    path("jobs/<str:job>", JobView.as_view(), name="job"),
    path("jobs/<str:job>/results", ResultsView.as_view(), name="results"),
    path("jobs/<str:job>/results/<path:output>", OutputView.as_view(), name="output"),
]
# An execution may wait for its result, and a transaction would never see it end.
for _route in urlpatterns:
    if _route.name == "execution":
        for _alias in {DEFAULT_DB_ALIAS, settings.DATABASE}:
            non_atomic_requests(_alias)(_route.callback)

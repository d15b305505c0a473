"""The URLs of ATP's pages. Include them with ``path("atp/", include("atp.urls"))``."""

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.urls import path

if not apps.is_installed("django_htmx"):
    raise ImproperlyConfigured(
        "The pages of ATP need 'django_htmx' in INSTALLED_APPS. Install ATP with its extra [web]."
    )

from .deadletters.pages import ErrorOperationPage, FailurePage, FailuresPage
from .graphs.pages import GraphPage, GraphsPage, MermaidText, NodesPage
from .pages.activity import ActivityPage
from .pages.bulk import ExportPage, MatchingPage, TickedPage
from .pages.daemons import DaemonPage, DaemonsPage, HostOperationPage
from .pages.gates import DownstreamPage, DownstreamsPage, GatePage, LimitPage
from .pages.instances import (
    EnqueuePage,
    InstancePage,
    InstancesPage,
    LogPage,
    PublishedFile,
    ResponseBody,
)
from .pages.operations import (
    DaemonOperationPage,
    DownstreamOperationPage,
    EndSessionPage,
    GraphOperationPage,
    InstanceOperationPage,
    TargetOperationPage,
)
from .pages.overview import OverviewPage, TypePage, TypesPage
from .schedules.pages import NewSchedulePage, ScheduleOperationPage, SchedulePage, SchedulesPage
from .tailers.pages import TailerOperationPage, TailerPage, TailersPage

app_name = "atp"

urlpatterns = [
    path("", OverviewPage.as_view(), name="overview"),
    path("activity/", ActivityPage.as_view(), name="activity"),
    path("gate/", GatePage.as_view(), name="gate"),
    path("instances/", InstancesPage.as_view(), name="instances"),
    path("instances/export", ExportPage.as_view(), name="export"),
    path("instances/all/<str:name>/", MatchingPage.as_view(), name="matching"),
    path("instances/ticked/<str:name>/", TickedPage.as_view(), name="ticked"),
    path("instances/<str:uuid>/", InstancePage.as_view(), name="instance"),
    path("instances/<str:uuid>/log/", LogPage.as_view(), name="log"),
    path("instances/<str:uuid>/response", ResponseBody.as_view(), name="response"),
    path("instances/<str:uuid>/files/<int:number>", PublishedFile.as_view(), name="file"),
    path("instances/<str:uuid>/<str:name>/", InstanceOperationPage.as_view(), name="instance-verb"),
    path("failures/", FailuresPage.as_view(), name="failures"),
    path("failures/<str:group>/", FailurePage.as_view(), name="failure"),
    path("failures/<str:group>/<str:name>/", ErrorOperationPage.as_view(), name="failure-verb"),
    path("types/", TypesPage.as_view(), name="types"),
    path("types/<str:identifier>/", TypePage.as_view(), name="type"),
    path("types/<str:identifier>/enqueue/", EnqueuePage.as_view(), name="enqueue"),
    path("types/<str:identifier>/schedule/", NewSchedulePage.as_view(), name="new-schedule"),
    path("types/<str:identifier>/gate/", GatePage.as_view(), name="type-gate"),
    path("types/<str:identifier>/limit/", LimitPage.as_view(), name="type-limit"),
    path("types/<str:identifier>/<str:name>/", TargetOperationPage.as_view(), name="type-verb"),
    path("schedules/", SchedulesPage.as_view(), name="schedules"),
    path("schedules/<str:identifier>/", SchedulePage.as_view(), name="schedule"),
    path(
        "schedules/<str:identifier>/<str:name>/",
        ScheduleOperationPage.as_view(),
        name="schedule-verb",
    ),
    path("tailers/", TailersPage.as_view(), name="tailers"),
    path("tailers/<str:tailer>/", TailerPage.as_view(), name="tailer"),
    path("tailers/<str:tailer>/<str:name>/", TailerOperationPage.as_view(), name="tailer-verb"),
    path("graphs/", GraphsPage.as_view(), name="graphs"),
    path("graphs/<str:uuid>/", GraphPage.as_view(), name="graph"),
    path("graphs/<str:uuid>/nodes/", NodesPage.as_view(), name="nodes"),
    path("graphs/<str:uuid>/graph.mmd", MermaidText.as_view(), name="graph-mermaid"),
    path("graphs/<str:uuid>/<str:name>/", GraphOperationPage.as_view(), name="graph-verb"),
    path("downstreams/", DownstreamsPage.as_view(), name="downstreams"),
    path("downstreams/<str:downstream>/", DownstreamPage.as_view(), name="downstream"),
    path(
        "downstreams/<str:downstream>/<str:name>/",
        DownstreamOperationPage.as_view(),
        name="downstream-verb",
    ),
    path("daemons/", DaemonsPage.as_view(), name="daemons"),
    path("daemons/<str:uuid>/", DaemonPage.as_view(), name="daemon"),
    path("daemons/hosts/<str:name>/", HostOperationPage.as_view(), name="host-verb"),
    path("daemons/<str:uuid>/<str:name>/", DaemonOperationPage.as_view(), name="daemon-verb"),
    path("end-session/", EndSessionPage.as_view(), {"name": "end-session"}, name="end-session"),
    path("<str:name>/", TargetOperationPage.as_view(), name="verb"),
]

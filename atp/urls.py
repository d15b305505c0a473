"""The pages: ``path("atp/", include("atp.urls"))``."""

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.urls import path

if not apps.is_installed("django_htmx"):
    raise ImproperlyConfigured(
        "The pages of ATP need 'django_htmx' in INSTALLED_APPS, from pip install 'django-atp[web]'."
    )

from .views.acting import ActionPage
from .views.changing import ChangePage
from .views.commanding import OrderPage
from .views.daemons import DaemonPage, DaemonsPage
from .views.deleting import DeletePage
from .views.enqueueing import EnqueuePage
from .views.gates import GatePage
from .views.instances import InstancePage, InstancesPage, LogPage, PublishedFile, ResponseBody
from .views.limits import LimitPage
from .views.overview import OverviewPage
from .views.types import TypePage, TypesPage

app_name = "atp"

urlpatterns = [
    path("", OverviewPage.as_view(), name="overview"),
    path("gate/", GatePage.as_view(), name="gate"),
    path("instances/", InstancesPage.as_view(), name="instances"),
    path("instances/<str:uuid>/", InstancePage.as_view(), name="instance"),
    path("instances/<str:uuid>/log/", LogPage.as_view(), name="log"),
    path("instances/<str:uuid>/response", ResponseBody.as_view(), name="response"),
    path("instances/<str:uuid>/files/<int:number>", PublishedFile.as_view(), name="file"),
    path("instances/<str:uuid>/change/", ChangePage.as_view(), name="change"),
    path("instances/<str:uuid>/delete/", DeletePage.as_view(), name="delete"),
    path("instances/<str:uuid>/<str:name>/", ActionPage.as_view(), name="action"),
    path("types/", TypesPage.as_view(), name="types"),
    path("types/<str:identifier>/", TypePage.as_view(), name="type"),
    path("types/<str:identifier>/enqueue/", EnqueuePage.as_view(), name="enqueue"),
    path("types/<str:identifier>/gate/", GatePage.as_view(), name="type-gate"),
    path("types/<str:identifier>/limit/", LimitPage.as_view(), name="type-limit"),
    path("daemons/", DaemonsPage.as_view(), name="daemons"),
    path("daemons/<str:uuid>/", DaemonPage.as_view(), name="daemon"),
    path("daemons/<str:uuid>/<str:name>/", OrderPage.as_view(), name="order"),
]

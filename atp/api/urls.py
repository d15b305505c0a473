"""The API: ``path("atp/api/", include("atp.api.urls"))``, before the pages."""

from django.core.exceptions import ImproperlyConfigured

from . import requirements

if requirements.problem():
    raise ImproperlyConfigured(requirements.problem())

from django.db import DEFAULT_DB_ALIAS
from django.db.transaction import non_atomic_requests
from django.urls import path, re_path

from ..conf import settings
from ..modes import Order
from ..web.actions import ACTIONS
from .acting import ActionView
from .commanding import OrderView
from .controls import GatesView, LimitsView
from .daemons import DaemonsView, DaemonView
from .health import HealthView
from .instances import InstancesView, InstanceView
from .parts import FilesView, FileView, InputsView, LogView, ResponseView
from .tasks import TasksView
from .types import TypesView, TypeView
from .unknown import UnknownView

app_name = "atp_api"


def _unwrapped(view):
    """A view that no transaction is put around: it waits, or has to survive a failing query."""
    for alias in {DEFAULT_DB_ALIAS, settings.DATABASE}:
        view = non_atomic_requests(alias)(view)
    return view


_resources = [
    path("types", TypesView.as_view(), name="types"),
    path("types/<str:identifier>", TypeView.as_view(), name="type"),
    path("instances", InstancesView.as_view(), name="instances"),
    path("instances/<str:uuid>", _unwrapped(InstanceView.as_view()), name="instance"),
    path("instances/<str:uuid>/log", LogView.as_view(), name="log"),
    path("instances/<str:uuid>/inputs", InputsView.as_view(), name="inputs"),
    path("instances/<str:uuid>/response", ResponseView.as_view(), name="response"),
    path("instances/<str:uuid>/files", FilesView.as_view(), name="files"),
    path("instances/<str:uuid>/files/<str:number>", FileView.as_view(), name="file"),
    *(
        path(f"instances/<str:uuid>/{name}", ActionView.as_view(verb=action), name=name)
        for name, action in ACTIONS.items()
    ),
    path("tasks", TasksView.as_view(), name="tasks"),
    path("gates", GatesView.as_view(), name="gates"),
    path("limits", LimitsView.as_view(), name="limits"),
    path("daemons", DaemonsView.as_view(), name="daemons"),
    path("daemons/<str:uuid>", DaemonView.as_view(), name="daemon"),
    *(
        path(f"daemons/<str:uuid>/{order}", OrderView.as_view(order=order), name=f"daemon-{order}")
        for order in Order
    ),
    path("health", _unwrapped(HealthView.as_view()), name="health"),
]
_known = tuple(str(each.pattern) for each in _resources)

urlpatterns = [
    *_resources,
    re_path(r"^(?P<path>.*)\Z", UnknownView.as_view(known=_known), name="unknown"),
]

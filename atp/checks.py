"""System checks: what is wrong with a project's settings, before it costs anything."""

from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings as project
from django.core import checks
from django.core.checks import Error, Tags, register
from django.core.files.storage import FileSystemStorage, storages
from django.db import connections, router
from django.db.utils import ConnectionDoesNotExist
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, Resolver404, resolve, reverse

from . import conf
from .conf import settings
from .registry import registry


@register(Tags.compatibility)
def check_settings(app_configs, **kwargs):
    """ATP's own settings: unknown keys, wrong types, a lease that breaks G3."""
    return [Error(problem, id="atp.E001") for problem in conf.problems()]


@register(Tags.compatibility)
def check_queue_database(app_configs, **kwargs):
    """The settings of the queue's database; it is not asked anything."""
    if conf.problems():
        return []
    try:
        connection = connections[settings.DATABASE]
    except ConnectionDoesNotExist:
        return [
            Error(
                f"ATP['DATABASE'] is {settings.DATABASE!r}, which is not in DATABASES."
                f"{conf.did_you_mean(settings.DATABASE, list(connections))}",
                id="atp.E002",
            )
        ]
    return [
        *_check_routing(),
        *(_check_sqlite(connection) if connection.vendor == "sqlite" else []),
    ]


@register(Tags.compatibility)
def check_transactional(app_configs, **kwargs):
    """A transaction that has the queue's rows in it is on the queue's database (G7)."""
    if conf.problems():
        return []
    return [
        Error(
            f"Type {task_type.identifier!r} is transactional on database {task_type.database!r}, "
            f"but the queue is in {settings.DATABASE!r}.",
            hint="What a handler writes can be committed with its end only in one database. "
            f"If it writes to {settings.DATABASE!r}, say transactional={settings.DATABASE!r}.",
            id="atp.E003",
        )
        for task_type in registry
        if task_type.database not in (None, settings.DATABASE)
    ]


@register(Tags.compatibility)
def check_storage(app_configs, **kwargs):
    """Published files and large responses need a place of their own."""
    if conf.problems():
        return []
    storage = storages[settings.STORAGE]
    if not isinstance(storage, FileSystemStorage) or storage.base_location:
        return []
    return [
        checks.Warning(
            f"ATP['STORAGE'] is {settings.STORAGE!r}, files in a directory that is not named: "
            "MEDIA_ROOT is empty.",
            hint="Published files and large responses go to wherever a process was started. Set "
            "MEDIA_ROOT, or give ATP a storage of its own in STORAGES.",
            id="atp.W005",
        )
    ]


@register(Tags.urls)
def check_login(app_configs, **kwargs):
    """Who is not logged in is sent from the pages to LOGIN_URL, which should be there."""
    try:
        reverse("atp:overview")
    except NoReverseMatch:
        return []  # the pages are not in use
    if _leads_somewhere(str(project.LOGIN_URL)):
        return []
    return [
        checks.Warning(
            f"LOGIN_URL is {project.LOGIN_URL!r}, which is no page of this project.",
            hint="The pages of ATP send whoever is not logged in there. Name a page to log in; "
            "ATP has a template for one: LoginView.as_view(template_name='atp/login.html').",
            id="atp.W006",
        )
    ]


def _leads_somewhere(url):
    try:
        path = resolve_url(url)
        if path.startswith("/") and not path.startswith("//"):
            resolve(urlsplit(path).path)
    except (NoReverseMatch, Resolver404):
        return False
    return True


def _check_routing():
    """Where the queue has an alias of its own, plain queries have to find it."""
    found = router.db_for_read(apps.get_model("atp", "Instance"))
    if found == settings.DATABASE:
        return []
    return [
        checks.Warning(
            f"ATP['DATABASE'] is {settings.DATABASE!r}, but DATABASE_ROUTERS sends ATP's models to "
            f"{found!r}.",
            hint="Add 'atp.router.QueueRouter' to DATABASE_ROUTERS.",
            id="atp.W004",
        )
    ]


_OPTIONS = "DATABASES[{alias!r}]['OPTIONS']"


def _check_sqlite(connection):
    """SQLite as a queue: WAL, immediate transactions and a busy time-out."""
    options = connection.settings_dict.get("OPTIONS", {})
    where = _OPTIONS.format(alias=connection.alias)
    found = []
    if str(options.get("transaction_mode") or "").upper() not in ("IMMEDIATE", "EXCLUSIVE"):
        found.append(
            checks.Warning(
                f"{where}['transaction_mode'] is not 'IMMEDIATE'.",
                hint="A transaction that reads first and writes later fails with 'database is "
                "locked' when another process has written in between.",
                id="atp.W001",
            )
        )
    pragmas = "".join(str(options.get("init_command") or "").lower().split())
    if "journal_mode=wal" not in pragmas:
        found.append(
            checks.Warning(
                f"{where}['init_command'] does not set 'PRAGMA journal_mode=WAL'.",
                hint="Without a write-ahead log every reader keeps the daemon waiting, and the "
                "daemon every reader.",
                id="atp.W002",
            )
        )
    if float(options.get("timeout", 5)) < 10:
        found.append(
            checks.Warning(
                f"{where}['timeout'] is less than 10 seconds.",
                hint="SQLite has one writer at a time: the others wait this long for their turn "
                "before they fail.",
                id="atp.W003",
            )
        )
    return found

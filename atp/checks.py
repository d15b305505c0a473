"""All system checks, `atp.W014` and so on: settings, database, folders, deployment."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import sys
from collections.abc import Iterator
from functools import wraps
from pathlib import Path
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings
from django.conf import settings as project
from django.core import checks
from django.core.checks import Error, Tags, register
from django.core.files.storage import FileSystemStorage, storages
from django.db import connections, router
from django.db.utils import ConnectionDoesNotExist
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, Resolver404, get_resolver, resolve, reverse
from django.utils.module_loading import import_string

from . import contracts, folders
from .authoring import retrying
from .conf import problems
from .conf import settings as conf_settings
from .middleware import problems as middleware_problems
from .operations.hooks import unmatched
from .operations.registry import IMPORTED, registry
from .sources import Table
from .store import get_store
from .tailers.tailer import declared
from .text import did_you_mean
from .web import permissions

# System checks: they report problems with a project's settings before a task runs.

__all__ = [
    "check_contracts",
    "check_database_file",
    "check_hooks",
    "check_login",
    "check_middleware",
    "check_pickle",
    "check_public_files",
    "check_queue_database",
    "check_retention",
    "check_scratch",
    "check_scratch_owner",
    "check_settings",
    "check_storage",
    "check_tailers",
    "check_tasks",
    "check_transactional",
    "check_types",
    "check_user",
    "check_users",
    "check_webhooks",
]


# The check for annotations of handlers from which no schema can be made.


@register(Tags.compatibility, deploy=True)
def check_contracts(app_configs, **kwargs):
    """Report the annotations of handlers from which no JSON Schema can be made.

    The report is a hint: such a parameter takes any JSON. The check runs with ``--deploy``
    only, since making a contract for each Type takes a while.
    """
    found = []
    for task_type in sorted(registry, key=str):
        contract = contracts.schema_of(task_type)
        for name, reason in contract.hints.items() if contract else ():
            text = f"The Type {task_type.identifier!r} takes any JSON for {name!r}: {reason}"
            if name == "return":
                text = f"The Type {task_type.identifier!r} returns any JSON: {reason}"
            found.append(checks.Info(text, obj=task_type.handler_path, id="atp.I015"))
    return found


# The check of ATP's own settings. Other checks that read them are skipped until they are valid.


@register(Tags.compatibility)
def check_settings(app_configs, **kwargs):
    """Check ATP's own settings: unknown keys, wrong types, a lease that breaks G3."""
    return [Error(problem, id="atp.E001") for problem in problems()]


def with_valid_settings(check):
    """Skip a check while :func:`check_settings` reports problems."""

    @wraps(check)
    def checked(app_configs, **kwargs):
        return [] if problems() else check(app_configs, **kwargs)

    return checked


# The checks of a deployment (``manage.py check --deploy``): who else can read, write or run.


@register(Tags.security, deploy=True)
@with_valid_settings
def check_public_files(app_configs, **kwargs):
    """Check that large responses and published files are not where the site serves files from."""
    storage = storages[conf_settings.STORAGE]
    if not isinstance(storage, FileSystemStorage) or not storage.base_location:
        return []
    folder = Path(storage.location, "atp")
    public = [
        name
        for name in ("MEDIA_ROOT", "STATIC_ROOT")
        if (root := getattr(project, name, None)) and _is_below(folder, root)
    ]
    if not public:
        return []
    return [
        checks.Warning(
            f"Large responses and published files are stored below {public[0]}, in {folder}. Where "
            "the site serves that folder, HTML of a task runs with the site's origin, and whoever "
            "knows an address can read them without view_response.",
            hint=_storage_hint(storage, folder),
            id="atp.W030",
        )
    ]


def _is_below(path, root):
    path, root = os.path.realpath(path), os.path.realpath(root)
    return os.path.commonpath([path, root]) == root


def _storage_hint(storage, folder):
    """Return the lines for the settings that give ATP a storage of its own."""
    location = f"{os.path.realpath(storage.location)}-atp"
    entry = (
        "{'BACKEND': 'django.core.files.storage.FileSystemStorage', "
        f"'OPTIONS': {{'location': {location!r}}}}}"
    )
    if project.is_overridden("STORAGES"):
        lines = [f"STORAGES['atp'] = {entry}"]
    else:
        lines = [
            "from django.conf import global_settings",
            f"STORAGES = {{**global_settings.STORAGES, 'atp': {entry}}}",
        ]
    has_atp = isinstance(getattr(project, "ATP", None), dict)
    lines.append("ATP['STORAGE'] = 'atp'" if has_atp else "ATP = {'STORAGE': 'atp'}")
    told = ["Add to the settings:", *(f"    {line}" for line in lines)]
    if folder.exists():
        target = shlex.quote(location)
        told += [
            "and move the files that are stored already, while no daemon runs:",
            f"    mkdir -p {target} && mv {shlex.quote(str(folder))} {target}/",
        ]
    return "\n".join(told)


@register(Tags.security, deploy=True)
@with_valid_settings
def check_pickle(app_configs, **kwargs):
    """Report that Types may ask for pickle."""
    if not conf_settings.ALLOW_PICKLE:
        return []
    return [
        checks.Warning(
            "ATP['ALLOW_PICKLE'] is True: whoever knows SECRET_KEY and can write to the queue's "
            "database can run code in the workers.",
            hint="Leave ALLOW_PICKLE out of ATP unless a Type needs serializer='pickle'.",
            id="atp.W031",
        )
    ]


@register(Tags.security, deploy=True)
@with_valid_settings
def check_webhooks(app_configs, **kwargs):
    """Report the targets of webhooks that get them unencrypted."""
    return [
        checks.Warning(
            f"ATP['WEBHOOKS'][{name!r}] is sent over http: whoever is on the way can read it, and "
            "which tasks end.",
            hint="Give the target an address that begins with https://, without 'allow_http'.",
            id="atp.W032",
        )
        for name, target in conf_settings.WEBHOOKS.items()
        if str(target["url"]).startswith("http://")
    ]


@register(Tags.security, deploy=True)
def check_user(app_configs, **kwargs):
    """Report that this process runs as root, as daemons may."""
    if os.geteuid() != 0:
        return []
    return [
        checks.Warning(
            "This process runs as root. If atpd does so too, a fault of any handler is a fault of "
            "root.",
            hint="Run atpd, and this check, as a user of their own: User= in a unit of systemd, "
            "USER in a container file.",
            id="atp.W033",
        )
    ]


@register(Tags.security, deploy=True)
@with_valid_settings
def check_database_file(app_configs, **kwargs):
    """Check that other users of the host cannot open the queue's SQLite file."""
    connection = connections[conf_settings.DATABASE]
    if connection.vendor != "sqlite" or connection.is_in_memory_db():
        return []
    database = str(get_store().lock_folder).removesuffix("-atpd")
    files = [database, f"{database}-wal", f"{database}-shm", f"{database}-journal"]
    wide = [each for each in files if _mode(each) & (stat.S_IROTH | stat.S_IWOTH)]
    if not wide:
        return []
    return [
        checks.Warning(
            f"Every user of the host can open {wide[0]}: read the inputs and responses of all "
            "tasks, and stop every writer by a lock.",
            hint=f"chmod o= {shlex.join(wide)}",
            id="atp.W034",
        )
    ]


@register(Tags.security, deploy=True)
@with_valid_settings
def check_scratch_owner(app_configs, **kwargs):
    """Check that other users cannot replace the folders in SCRATCH_DIR."""
    folder = conf_settings.SCRATCH_DIR
    mode = _mode(folder)
    if not mode & stat.S_IWOTH or mode & stat.S_ISVTX:
        return []
    return [
        checks.Warning(
            f"ATP['SCRATCH_DIR'], {folder}, can be written by every user, without the sticky bit: "
            f"any of them can replace scratch directories. {folders.whose(folder).capitalize()}.",
            hint=f"chmod +t {shlex.quote(str(folder))}",
            id="atp.W035",
        )
    ]


def _mode(path):
    try:
        return os.stat(path).st_mode
    except OSError:
        return 0


# The checks of the folders for published files and for scratch directories.


@register(Tags.compatibility)
@with_valid_settings
def check_storage(app_configs, **kwargs):
    """Check that published files and large responses have a folder that can be written."""
    storage = storages[conf_settings.STORAGE]
    if not isinstance(storage, FileSystemStorage):
        return []
    if storage.base_location:
        return _check_writable(
            f"ATP['STORAGE'] is {conf_settings.STORAGE!r}",
            storage.location,
            "A handler that publishes a file there, or returns a large response, fails after its "
            "work is done.",
            "atp.W011",
        )
    return [
        checks.Warning(
            f"ATP['STORAGE'] is {conf_settings.STORAGE!r}, which stores files in a directory "
            "that no setting names: MEDIA_ROOT is empty.",
            hint="Each process stores published files and large responses in the directory where "
            "it was started. Set MEDIA_ROOT, or give ATP a storage of its own in STORAGES.",
            id="atp.W005",
        )
    ]


@register(Tags.compatibility)
@with_valid_settings
def check_scratch(app_configs, **kwargs):
    """Check that SCRATCH_DIR can be written by the user of this check; a daemon's may differ."""
    return _check_writable(
        "ATP['SCRATCH_DIR']",
        conf_settings.SCRATCH_DIR,
        "No atpd of this user will start.",
        "atp.W010",
    )


def _check_writable(name, folder, hint, id):
    refusal = folders.refusal(folder)
    return [checks.Warning(f"{name}: {refusal}.", hint=hint, id=id)] if refusal else []


# The check of hooks that are declared for patterns of Types.


# Django runs a check before each command. The tag is one that ``manage.py atp`` leaves out.
@register("atp")
@with_valid_settings
def check_hooks(app_configs, **kwargs):
    """Check that each pattern of ``on_finished`` and ``on_failed`` matches a Type."""
    return [checks.Warning(problem, id="atp.W014") for problem in unmatched()]


# The check of the middleware and the carriers that the settings name.


@register(Tags.compatibility)
@with_valid_settings
def check_middleware(app_configs, **kwargs):
    """Check that all that ``ATP["MIDDLEWARE"]`` and ``ATP["CARRIERS"]`` name can be used."""
    return [Error(problem, id="atp.E020") for problem in middleware_problems()]


# The checks of the middleware, the login page and the rule that the pages of ATP need.

_AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"


@register(Tags.urls)
def check_users(app_configs, **kwargs):
    """Check that AuthenticationMiddleware gives requests the user that the pages ask for."""
    if not _are_pages_in_use() or any(map(_is_authenticating, project.MIDDLEWARE)):
        return []
    return [
        checks.Warning(
            "The pages of ATP are in use, but no AuthenticationMiddleware is in MIDDLEWARE.",
            hint="Without one a request has no user. Add SessionMiddleware and "
            f"{_AUTHENTICATION!r}.",
            id="atp.W012",
        )
    ]


def _is_authenticating(name):
    try:
        found = import_string(name)
    except ImportError:
        return False
    # Compared by name: a project need not have Django's users. A function may do anything.
    kinds = getattr(found, "__mro__", ())
    return not kinds or any(f"{k.__module__}.{k.__qualname__}" == _AUTHENTICATION for k in kinds)


def _are_pages_in_use():
    if not getattr(project, "ROOT_URLCONF", None):
        return False  # a project that only runs tasks may have none
    try:
        reverse("atp:overview")
    except NoReverseMatch:
        return False
    return True


@register(Tags.urls)
def check_login(app_configs, **kwargs):
    """Check that LOGIN_URL exists: the pages send users there who are not logged in."""
    if not _are_pages_in_use():
        return []
    if _leads_somewhere(str(project.LOGIN_URL)):
        return []
    return [
        checks.Warning(
            f"LOGIN_URL is {project.LOGIN_URL!r}, which is no page of this project.",
            hint="The pages of ATP send users there who are not logged in. Set LOGIN_URL to a page "
            "to log in; ATP has a template for one: "
            "LoginView.as_view(template_name='atp/login.html').",
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


@register(Tags.security)
@with_valid_settings
def check_rule(app_configs, **kwargs):
    """Check that the function that ``ATP["AUTHORIZE"]`` names can be used."""
    return [checks.Error(problem, id="atp.E021") for problem in permissions.problems()]


# The checks of the queue's database, and of the declared Types.

# A message names this many Types at most.
NAMED = 10
# A daemon's dispatcher has three connections: to claim, to record and to purge.
FROM_A_POOL = 3
# The psycopg pool's own.
_POOL_SIZE = 4


@register(Tags.compatibility)
@with_valid_settings
def check_queue_database(app_configs, **kwargs):
    """Check the settings of the queue's database, without a connection to it."""
    try:
        connection = connections[conf_settings.DATABASE]
    except ConnectionDoesNotExist:
        return [
            Error(
                f"ATP['DATABASE'] is {conf_settings.DATABASE!r}, which is not in DATABASES."
                f"{did_you_mean(conf_settings.DATABASE, list(connections))}",
                id="atp.E002",
            )
        ]
    return [
        *_check_routing(),
        *(_check_sqlite(connection) if connection.vendor == "sqlite" else []),
        *_check_pool(connection),
    ]


@register(Tags.compatibility)
@with_valid_settings
def check_transactional(app_configs, **kwargs):
    """Check that transactional Types name the queue's database, where their end is written (G7)."""
    return [
        Error(
            f"Type {task_type.identifier!r} is transactional on database {task_type.database!r}, "
            f"but the queue is in {conf_settings.DATABASE!r}.",
            hint="One transaction commits the handler's writes and its end, so both must be in one "
            f"database. If the handler writes to {conf_settings.DATABASE!r}, set "
            f"transactional={conf_settings.DATABASE!r}.",
            id="atp.E003",
        )
        for task_type in registry
        if task_type.database not in (None, conf_settings.DATABASE)
    ]


@register(Tags.compatibility)
@with_valid_settings
def check_exceptions(app_configs, **kwargs):
    """Check the dotted names in ``retry_on``, ``fatal_on`` and ``downstream_errors``."""
    return [
        Error(f"Type {task_type.identifier!r}: {problem}", id="atp.E008")
        for task_type in registry
        for problem in retrying.problems(task_type)
    ]


@register(Tags.compatibility)
@with_valid_settings
def check_retention(app_configs, **kwargs):
    """Report the Types that keep Instances for ever: some day these fill the disk."""
    kept = sorted(
        task_type.identifier for task_type in registry if task_type.registration().retention is None
    )
    if not kept:
        return []
    named = ", ".join(kept[:NAMED]) + (", …" if len(kept) > NAMED else "")
    return [
        checks.Info(
            f"{len(kept)} Types keep terminal Instances for ever: {named}.",
            hint="An Instance with its log takes about 1 kB. Set retention=timedelta(days=…) "
            "of the Type, or ATP['RETENTION']. If they are to be kept for ever, add 'atp.I007' to "
            "SILENCED_SYSTEM_CHECKS.",
            id="atp.I007",
        )
    ]


def _check_routing():
    """Check that DATABASE_ROUTERS sends queries for ATP's models to the queue's database."""
    found = router.db_for_read(apps.get_model("atp", "Instance"))
    if found == conf_settings.DATABASE:
        return []
    return [
        checks.Warning(
            f"ATP['DATABASE'] is {conf_settings.DATABASE!r}, but DATABASE_ROUTERS sends ATP's "
            f"models to {found!r}.",
            hint="Add 'atp.router.QueueRouter' to DATABASE_ROUTERS.",
            id="atp.W004",
        )
    ]


@register(Tags.database)
@with_valid_settings
def check_server(app_configs, databases=None, **kwargs):
    """Check the encoding and ``array_nulls`` of the queue's database, if that is PostgreSQL.

    This takes a connection to the database.
    """
    if conf_settings.DATABASE not in (databases or ()):
        return []
    connection = connections[conf_settings.DATABASE]
    if connection.vendor != "postgresql":
        return []
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_encoding'), current_setting('array_nulls')")
        encoding, nulls = cursor.fetchone()
    problems = []
    if encoding != "UTF8":
        problems.append(
            checks.Warning(
                f"The queue's database {conf_settings.DATABASE!r} is in {encoding}: a task with a "
                "character that this encoding lacks cannot be enqueued.",
                hint="Make the database with ENCODING 'UTF8'.",
                id="atp.W017",
            )
        )
    if nulls != "on":
        problems.append(
            Error(
                "array_nulls is off in the queue's database: an enqueue of many would store the "
                "text 'NULL' in place of null values.",
                hint="ALTER ROLE … RESET array_nulls, or set it to on.",
                id="atp.E018",
            )
        )
    return problems


def _check_pool(connection):
    """Check that a pool of psycopg 3 has a connection for each thread of a daemon."""
    pool = connection.settings_dict.get("OPTIONS", {}).get("pool")
    if not pool or connection.vendor != "postgresql":
        return []
    given = pool if isinstance(pool, dict) else {}
    most = given.get("max_size") or given.get("min_size", _POOL_SIZE)
    if most >= FROM_A_POOL:
        return []
    return [
        checks.Warning(
            f"DATABASES[{connection.alias!r}]['OPTIONS']['pool'] lets each process have {most} "
            f"connections; a daemon's dispatcher takes {FROM_A_POOL}.",
            hint=f"Say max_size={FROM_A_POOL} or more.",
            id="atp.W016",
        )
    ]


def _check_sqlite(connection):
    """Check the options that SQLite needs as a queue: WAL, immediate transactions, a time-out."""
    options = connection.settings_dict.get("OPTIONS", {})
    mode = str(options.get("transaction_mode") or "").upper()
    pragmas = "".join(str(options.get("init_command") or "").lower().split())
    is_fine = {
        "atp.W001": mode in ("IMMEDIATE", "EXCLUSIVE"),
        "atp.W002": "journal_mode=wal" in pragmas,
        "atp.W003": float(options.get("timeout", 5)) >= 10,
    }
    where = f"DATABASES[{connection.alias!r}]['OPTIONS']"
    return [
        checks.Warning(f"{where}{problem}", hint=hint, id=id)
        for id, (problem, hint) in _SQLITE.items()
        if not is_fine[id]
    ]


_SQLITE = {
    "atp.W001": (
        "['transaction_mode'] is not 'IMMEDIATE'.",
        "A transaction that reads first and writes later fails with 'database is locked' when "
        "another process has written in between.",
    ),
    "atp.W002": (
        "['init_command'] does not set 'PRAGMA journal_mode=WAL'.",
        "Without a write-ahead log readers wait for the daemon's writes, and the daemon waits for "
        "readers.",
    ),
    "atp.W003": (
        "['timeout'] is less than 10 seconds.",
        "SQLite has one writer at a time: the others wait this long for their turn before they "
        "fail.",
    ),
}


# The check of tailers: whether their sources can be read.


@register(Tags.compatibility)
@with_valid_settings
def check_tailers(app_configs, **kwargs):
    """Check that the source of each tailer is there, with the library that it needs (G18)."""
    return [*_misplaced(), *_problems()]


def _misplaced() -> Iterator[checks.CheckMessage]:
    for tailer in declared:
        why = tailer.source.misplaced() if isinstance(tailer.source, Table) else ""
        if why:
            yield checks.Error(
                f"Tailer {tailer.identifier!r}: {why}.",
                hint="A row is removed in the transaction that enqueues its Instances. Have your "
                f"router put the model into {conf_settings.DATABASE!r}, or read the rows with a "
                "source of your own.",
                id="atp.E022",
            )


def _problems() -> list[checks.CheckMessage]:
    return [
        checks.Warning(f"Tailer {tailer.identifier!r}: {problem}.", id="atp.W019")
        for tailer in declared
        for problem in tailer.source.problems()
    ]


# The check of the setting TASKS, for its entries that name ATPBackend.


@register(Tags.compatibility)
@with_valid_settings
def check_tasks(app_configs, **kwargs):
    """Check OPTIONS and QUEUES of each entry of TASKS for ATPBackend.

    The backend's own ``check()`` would not do: ``atpd`` does not run the checks of
    ``django.tasks``, and the backport has none unless it is an installed app itself.
    """
    return [
        message
        for alias, entry in _entries()
        for message in _messages(alias, entry.get("QUEUES") or (), entry.get("OPTIONS", {}))
    ]


def _entries():
    """Yield alias and entry for each entry of ATPBackend. Others may load ``django.tasks``."""
    tasks = getattr(settings, "TASKS", None)
    for alias, entry in tasks.items() if isinstance(tasks, dict) else ():
        try:
            found = import_string(entry["BACKEND"])
        except (AttributeError, ImportError, KeyError, TypeError):
            continue  # django.tasks reports it
        own = sys.modules.get("atp.backend")
        if own is not None and isinstance(found, type) and issubclass(found, own.ATPBackend):
            yield alias, entry


def _messages(alias, queues, given):
    from .backend import task
    from .backend.task import BackendOptions

    return task.messages(alias, queues, BackendOptions(f"TASKS[{alias!r}]['OPTIONS']", given))


# The check of the modules that declare Types.


# With the checks of URLs, which import the views: those enqueue what daemons may not import.
@register(Tags.urls)
@with_valid_settings
def check_types(app_configs, **kwargs):
    """Check that daemons import the modules of all Types that views import."""
    if getattr(project, "ROOT_URLCONF", None):
        # Django's own check reports a URLconf that cannot be imported.
        with contextlib.suppress(Exception):
            get_resolver().url_patterns  # noqa: B018 (imports the views)
    return [
        checks.Warning(
            f"The Type {task_type.identifier!r} is declared in {task_type.handler.__module__}, "
            "which no daemon imports.",
            hint=f"{IMPORTED}. Import {task_type.handler.__module__} in a tasks.py.",
            id="atp.W036",
        )
        for task_type in registry.unreached()
    ]

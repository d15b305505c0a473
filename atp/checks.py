"""ATP's system checks, such as `atp.W014`: settings, databases, folders, deployment."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings as project
from django.core import checks
from django.core.checks import CheckMessage, Error, Info, Tags, register
from django.core.files.storage import FileSystemStorage, storages
from django.db import connections, router
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, Resolver404, get_resolver, resolve, reverse
from django.utils.connection import ConnectionDoesNotExist
from django.utils.module_loading import import_string

from . import contracts, folders
from .authoring import retrying
from .conf import Defaults, setting_problems, settings
from .middleware import describe_incapable, factories, is_async_capable
from .middleware import find_problems as middleware_problems
from .ogc import processes
from .operations.hooks import describe_unmatched
from .operations.registry import DAEMON_IMPORTS, registry
from .sources import Table
from .store import get_store
from .tailers.tailer import declared
from .text import did_you_mean
from .web import permissions

# The most Types that a message names.
MAX_NAMED = 10
# A daemon's dispatcher has three connections: to claim, to record and to purge.
POOL_CONNECTIONS = 3
# The default size of psycopg's pool.
_DEFAULT_POOL_SIZE = 4
_AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"

Check = Callable[..., list[CheckMessage]]


def with_valid_settings(check: Check) -> Check:
    """Decorate a check to report nothing while :func:`check_settings` reports problems."""

    @wraps(check)
    def checked(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
        return [] if setting_problems() else check(app_configs, **kwargs)

    return checked


@register(Tags.compatibility)
def check_settings(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check ``settings.ATP``: unknown keys, wrong types, lease times that break guarantee G3."""
    return [Error(problem, id="atp.E001") for problem in setting_problems()]


@register(Tags.compatibility, deploy=True)
def check_contracts(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report the annotations of handlers that ATP cannot convert to a JSON Schema.

    Each report is only a hint, because ATP accepts any JSON where it has no schema. The check runs
    only with ``--deploy``, because it takes a while to make the schemas of all Types.
    """
    found: list[CheckMessage] = []
    for task_type in sorted(registry, key=str):
        contract = contracts.schema_of(task_type)
        for name, reason in contract.hints.items() if contract else ():
            text = f"The Type {task_type.identifier!r} takes any JSON for {name!r}: {reason}"
            if name == "return":
                text = f"The Type {task_type.identifier!r} returns any JSON: {reason}"
            found.append(Info(text, obj=task_type.handler_path, id="atp.I015"))
    return found


@register("atp", deploy=True)
@with_valid_settings
def check_processes(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Warn of public Types that cannot be offered to the clients of OGC API – Processes."""
    public = [each for each in sorted(registry, key=str) if each.public]
    return [
        checks.Warning(
            f"The public Type {each.identifier!r} is not offered as a process: {problem}.",
            obj=each.handler_path,
            id="atp.W020",
        )
        for each in public
        if (problem := processes.problem_of(each)) is not None
    ]


# Checks of a deployment (``manage.py check --deploy``): who else can read, write or run code


@register(Tags.security, deploy=True)
@with_valid_settings
def check_public_files(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Warn if large responses and published files are stored below MEDIA_ROOT or STATIC_ROOT."""
    storage = storages[settings.STORAGE]
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
            f"Large responses and published files are stored below {public[0]}, in {folder}. If "
            "the site serves that folder, HTML from a task runs with the site's origin, and anyone "
            "who knows an address can read the files without view_response.",
            hint=_storage_hint(storage, folder),
            id="atp.W030",
        )
    ]


def _is_below(path: Path, root: str | Path) -> bool:
    folder, top = os.path.realpath(path), os.path.realpath(root)
    return os.path.commonpath([folder, top]) == top


def _storage_hint(storage: FileSystemStorage, folder: Path) -> str:
    """Return a hint: the lines to add to the settings to give ATP its own storage."""
    location = f"{os.path.realpath(storage.location)}-atp"
    entry = (
        "{'BACKEND': 'django.core.files.storage.FileSystemStorage', "
        f"'OPTIONS': {{'location': {location!r}}}}}"
    )
    if project.is_overridden("STORAGES"):  # type: ignore[misc]
        lines = [f"STORAGES['atp'] = {entry}"]
    else:
        lines = [
            "from django.conf import global_settings",
            f"STORAGES = {{**global_settings.STORAGES, 'atp': {entry}}}",
        ]
    has_atp = isinstance(getattr(project, "ATP", None), dict)
    lines.append("ATP['STORAGE'] = 'atp'" if has_atp else "ATP = {'STORAGE': 'atp'}")
    hint = ["Add to the settings:", *(f"    {line}" for line in lines)]
    if folder.exists():
        target = shlex.quote(location)
        hint += [
            "and move the files that are already stored, while no daemon runs:",
            f"    mkdir -p {target} && mv {shlex.quote(str(folder))} {target}/",
        ]
    return "\n".join(hint)


@register(Tags.security, deploy=True)
@with_valid_settings
def check_pickle(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Warn if ``ATP["ALLOW_PICKLE"]`` allows Types to use pickle."""
    if not settings.ALLOW_PICKLE:
        return []
    return [
        checks.Warning(
            "ATP['ALLOW_PICKLE'] is True: anyone who knows SECRET_KEY and can write to the "
            "queue's database can run code in the workers.",
            hint="Leave ALLOW_PICKLE out of ATP unless a Type needs serializer='pickle'.",
            id="atp.W031",
        )
    ]


@register(Tags.security, deploy=True)
@with_valid_settings
def check_webhooks(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Warn about webhook targets that receive messages over unencrypted http."""
    return [
        checks.Warning(
            f"ATP['WEBHOOKS'][{name!r}] is sent over http: anyone on the network path can read it, "
            "and learn which tasks end.",
            hint="Give the target an address that begins with https://, without 'allow_http'.",
            id="atp.W032",
        )
        for name, target in settings.WEBHOOKS.items()
        if str(target["url"]).startswith("http://")
    ]


@register(Tags.security, deploy=True)
def check_user(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Warn if this process runs as root, because the daemons might then run as root too."""
    if os.geteuid() != 0:
        return []
    return [
        checks.Warning(
            "This process runs as root. If atpd runs as root too, a bug in a handler can do "
            "everything that root can do.",
            hint="Run atpd, and this check, as a dedicated user: User= in a systemd unit, USER in "
            "a container file.",
            id="atp.W033",
        )
    ]


@register(Tags.security, deploy=True)
@with_valid_settings
def check_database_file(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Warn if every user of the host can open the queue's SQLite file."""
    connection: Any = connections[settings.DATABASE]
    if connection.vendor != "sqlite" or connection.is_in_memory_db():
        return []
    database = str(get_store().lock_folder).removesuffix("-atpd")
    files = [database, f"{database}-wal", f"{database}-shm", f"{database}-journal"]
    wide = [each for each in files if _mode(each) & (stat.S_IROTH | stat.S_IWOTH)]
    if not wide:
        return []
    return [
        checks.Warning(
            f"Every user of the host can open {wide[0]}, and so read the inputs and responses of "
            "all tasks, and block every writer with a lock.",
            hint=f"chmod o= {shlex.join(wide)}",
            id="atp.W034",
        )
    ]


@register(Tags.security, deploy=True)
@with_valid_settings
def check_scratch_owner(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Warn if other users can replace the folders in SCRATCH_DIR."""
    folder = settings.SCRATCH_DIR
    mode = _mode(folder)
    if not mode & stat.S_IWOTH or mode & stat.S_ISVTX:
        return []
    return [
        checks.Warning(
            f"ATP['SCRATCH_DIR'], {folder}, is writable for every user and has no sticky bit: "
            "any of them can replace scratch directories. "
            f"{folders.describe_owner(folder).capitalize()}.",
            hint=f"chmod +t {shlex.quote(str(folder))}",
            id="atp.W035",
        )
    ]


def _mode(path: str | Path) -> int:
    """Return the ``st_mode`` of a file; 0 if ``os.stat()`` fails."""
    try:
        return os.stat(path).st_mode
    except OSError:
        return 0


# The folders for published files and for scratch directories


@register(Tags.compatibility)
@with_valid_settings
def check_storage(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that this process can write to the folder for large responses and published files."""
    storage = storages[settings.STORAGE]
    if not isinstance(storage, FileSystemStorage):
        return []
    if storage.base_location:
        return _check_writable(
            f"ATP['STORAGE'] is {settings.STORAGE!r}",
            Path(storage.location),
            "A handler that publishes a file there, or returns a large response, fails after its "
            "work is done.",
            "atp.W011",
        )
    return [
        checks.Warning(
            f"ATP['STORAGE'] is {settings.STORAGE!r}, which stores files in a directory "
            "that no setting names: MEDIA_ROOT is empty.",
            hint="Each process stores published files and large responses in the directory where "
            "it was started. Set MEDIA_ROOT, or define a separate storage for ATP in STORAGES.",
            id="atp.W005",
        )
    ]


@register(Tags.compatibility)
@with_valid_settings
def check_scratch(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that this process can write to SCRATCH_DIR.

    A daemon might run as another user, so the check only warns.
    """
    return _check_writable(
        "ATP['SCRATCH_DIR']",
        settings.SCRATCH_DIR,
        "An atpd that runs as this user will not start.",
        "atp.W010",
    )


def _check_writable(name: str, folder: str | Path, hint: str, id: str) -> list[CheckMessage]:
    refusal = folders.why_unwritable(folder)
    return [checks.Warning(f"{name}: {refusal}.", hint=hint, id=id)] if refusal else []


# Hooks and middleware


# Django runs checks before each command. ``manage.py atp`` leaves out those with this tag.
@register("atp")
@with_valid_settings
def check_hooks(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that the pattern of each ``on_finished`` and ``on_failed`` hook matches a Type."""
    return [checks.Warning(problem, id="atp.W014") for problem in describe_unmatched()]


@register(Tags.compatibility)
@with_valid_settings
def check_middleware(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that ATP can load the classes in ``ATP["MIDDLEWARE"]`` and ``ATP["CARRIERS"]``."""
    return [Error(problem, id="atp.E020") for problem in middleware_problems()]


# Django runs checks before each command. ``manage.py atp`` leaves out those with this tag.
@register("atp")
@with_valid_settings
def check_middleware_of_loops(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that the middleware can wrap attempts in loops, if Types have a concurrency."""
    if middleware_problems():
        return []  # E020 says why
    types = sorted(each.identifier for each in registry if each.concurrency)
    return [
        Error(describe_incapable(factory), hint=f"Type {types[0]!r} has one.", id="atp.E024")
        for factory in factories()
        if types and not is_async_capable(factory)
    ]


# What the pages need: users, a login page, the rule about who may do what


@register(Tags.urls)
def check_users(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that AuthenticationMiddleware is in MIDDLEWARE, if the project uses ATP's pages."""
    if not _are_pages_in_use() or any(map(_is_authenticating, project.MIDDLEWARE)):
        return []
    return [
        checks.Warning(
            "The pages of ATP are in use, but no AuthenticationMiddleware is in MIDDLEWARE.",
            hint="Without it a request has no user. Add SessionMiddleware and "
            f"{_AUTHENTICATION!r}.",
            id="atp.W012",
        )
    ]


def _is_authenticating(name: str) -> bool:
    """Return True if the middleware with this dotted path might set ``request.user``."""
    try:
        found = import_string(name)
    except ImportError:
        return False
    # Compared by name: a project need not have Django's users. A function may do anything.
    kinds = getattr(found, "__mro__", ())
    return not kinds or any(f"{k.__module__}.{k.__qualname__}" == _AUTHENTICATION for k in kinds)


def _are_pages_in_use() -> bool:
    if not getattr(project, "ROOT_URLCONF", None):
        return False  # a project that only runs tasks may have none
    try:
        reverse("atp:overview")
    except NoReverseMatch:
        return False
    return True


@register(Tags.urls)
def check_login(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that LOGIN_URL leads to a page, because ATP's pages redirect users there to log in."""
    if not _are_pages_in_use():
        return []
    if _leads_somewhere(str(project.LOGIN_URL)):
        return []
    return [
        checks.Warning(
            f"LOGIN_URL is {project.LOGIN_URL!r}, which is not a page of this project.",
            hint="ATP's pages redirect users who are not logged in to LOGIN_URL. Set it to a login "
            "page; ATP has a template for one: "
            "LoginView.as_view(template_name='atp/login.html').",
            id="atp.W006",
        )
    ]


def _leads_somewhere(url: str) -> bool:
    """Return True if a URL belongs to a view of this project, or to another site."""
    try:
        path = resolve_url(url)
        if path.startswith("/") and not path.startswith("//"):
            resolve(urlsplit(path).path)
    except (NoReverseMatch, Resolver404):
        return False
    return True


@register(Tags.security)
@with_valid_settings
def check_rule(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that ATP can use the function that ``ATP["AUTHORIZE"]`` names."""
    return [Error(problem, id="atp.E021") for problem in permissions.problems()]


@register(Tags.security)
@with_valid_settings
def check_lanes(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that ATP can use the function that ``ATP["OGC_LANE"]`` names."""
    path = settings.OGC_LANE
    if path == Defaults.OGC_LANE:  # it needs packages that a project without the views may lack
        return []
    try:
        found = import_string(path)
    except ImportError as error:
        return [Error(f"ATP['OGC_LANE']: {path!r} cannot be imported: {error}.", id="atp.E023")]
    if callable(found):
        return []
    text = f"ATP['OGC_LANE']: {path!r} must be a function of a request, but it is {found!r}."
    return [Error(text, id="atp.E023")]


# The queue's database, and the declared Types


@register(Tags.compatibility)
@with_valid_settings
def check_queue_database(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check the settings of the queue's database without connecting to it."""
    try:
        connection = connections[settings.DATABASE]
    except ConnectionDoesNotExist:
        return [
            Error(
                f"ATP['DATABASE'] is {settings.DATABASE!r}, which is not in DATABASES."
                f"{did_you_mean(settings.DATABASE, list(connections))}",
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
def check_transactional(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that each transactional Type uses the queue's database.

    ATP records the end of an attempt in the queue's database, in the same transaction in which the
    handler of a transactional Type writes (guarantee G7).
    """
    return [
        Error(
            f"Type {task_type.identifier!r} is transactional on database {task_type.database!r}, "
            f"but the queue is in {settings.DATABASE!r}.",
            hint="One transaction commits the handler's writes and its end, so both must be in one "
            f"database. If the handler writes to {settings.DATABASE!r}, set "
            f"transactional={settings.DATABASE!r}.",
            id="atp.E003",
        )
        for task_type in registry
        if task_type.database not in (None, settings.DATABASE)
    ]


@register(Tags.compatibility)
@with_valid_settings
def check_exceptions(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that ``retry_on``, ``fatal_on`` and ``downstream_errors`` name existing exceptions."""
    return [
        Error(f"Type {task_type.identifier!r}: {problem}", id="atp.E008")
        for task_type in registry
        for problem in retrying.unknown_exceptions(task_type)
    ]


@register(Tags.compatibility)
@with_valid_settings
def check_retention(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report the Types whose terminal Instances ATP never purges, which can fill the disk."""
    kept = sorted(
        task_type.identifier for task_type in registry if task_type.registration().retention is None
    )
    if not kept:
        return []
    named = ", ".join(kept[:MAX_NAMED]) + (", …" if len(kept) > MAX_NAMED else "")
    return [
        Info(
            f"{len(kept)} Types keep terminal Instances for ever: {named}.",
            hint="An Instance with its log takes about 1 kB. Set retention=timedelta(days=…) "
            "of the Type, or ATP['RETENTION']. To keep them for ever, add 'atp.I007' to "
            "SILENCED_SYSTEM_CHECKS.",
            id="atp.I007",
        )
    ]


def _check_routing() -> list[CheckMessage]:
    """Check that DATABASE_ROUTERS sends queries for ATP's models to the queue's database."""
    found = router.db_for_read(apps.get_model("atp", "Instance"))
    if found == settings.DATABASE:
        return []
    return [
        checks.Warning(
            f"ATP['DATABASE'] is {settings.DATABASE!r}, but DATABASE_ROUTERS sends ATP's "
            f"models to {found!r}.",
            hint="Add 'atp.router.QueueRouter' to DATABASE_ROUTERS.",
            id="atp.W004",
        )
    ]


@register(Tags.database)
@with_valid_settings
def check_server(
    app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Check the encoding and ``array_nulls`` of a queue's database on PostgreSQL.

    The check connects to the database.
    """
    if settings.DATABASE not in (databases or ()):
        return []
    connection = connections[settings.DATABASE]
    if connection.vendor != "postgresql":
        return []
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_encoding'), current_setting('array_nulls')")
        encoding, nulls = cursor.fetchone()
    found: list[CheckMessage] = []
    if encoding != "UTF8":
        found.append(
            checks.Warning(
                f"The queue's database {settings.DATABASE!r} is in {encoding}: a task with a "
                "character that this encoding lacks cannot be enqueued.",
                hint="Create the database with ENCODING 'UTF8'.",
                id="atp.W017",
            )
        )
    if nulls != "on":
        found.append(
            Error(
                "array_nulls is off in the queue's database: enqueuing many at once would store "
                "the text 'NULL' in place of null values.",
                hint="ALTER ROLE … RESET array_nulls, or set it to on.",
                id="atp.E018",
            )
        )
    return found


def _check_pool(connection: Any) -> list[CheckMessage]:
    """Check that psycopg's connection pool is large enough for a daemon's dispatcher."""
    pool = connection.settings_dict.get("OPTIONS", {}).get("pool")
    if not pool or connection.vendor != "postgresql":
        return []
    options = pool if isinstance(pool, dict) else {}
    most = options.get("max_size") or options.get("min_size", _DEFAULT_POOL_SIZE)
    if most >= POOL_CONNECTIONS:
        return []
    return [
        checks.Warning(
            f"DATABASES[{connection.alias!r}]['OPTIONS']['pool'] lets each process have {most} "
            f"connections; a daemon's dispatcher uses {POOL_CONNECTIONS}.",
            hint=f"Set max_size to {POOL_CONNECTIONS} or more.",
            id="atp.W016",
        )
    ]


def _check_sqlite(connection: Any) -> list[CheckMessage]:
    """Check that a queue in SQLite uses WAL, immediate transactions and a sufficient timeout."""
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
        "another process writes in between.",
    ),
    "atp.W002": (
        "['init_command'] does not set 'PRAGMA journal_mode=WAL'.",
        "Without a write-ahead log readers wait for the daemon's writes, and the daemon waits for "
        "readers.",
    ),
    "atp.W003": (
        "['timeout'] is less than 10 seconds.",
        "SQLite allows one writer at a time. The other writers wait this long, and then they fail.",
    ),
}


# Tailers


@register(Tags.compatibility)
@with_valid_settings
def check_tailers(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check that each tailer can read its source (G18).

    The table of a tailer must be in the queue's database, and the library for a source must be
    installed.
    """
    return [*_check_tables(), *_check_sources()]


def _check_tables() -> Iterator[CheckMessage]:
    for tailer in declared:
        why = tailer.source.misplaced() if isinstance(tailer.source, Table) else ""
        if why:
            yield Error(
                f"Tailer {tailer.identifier!r}: {why}.",
                hint="ATP removes a row in the transaction that enqueues its Instances. Have your "
                f"router put the model into {settings.DATABASE!r}, or read the rows with your own "
                "source.",
                id="atp.E022",
            )


def _check_sources() -> list[CheckMessage]:
    return [
        checks.Warning(f"Tailer {tailer.identifier!r}: {problem}.", id="atp.W019")
        for tailer in declared
        for problem in tailer.source.problems()
    ]


# The entries of the setting TASKS that name ATPBackend


@register(Tags.compatibility)
@with_valid_settings
def check_tasks(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Check the OPTIONS and QUEUES of each entry in TASKS whose BACKEND is ATPBackend.

    The backend's own ``check()`` is not enough, because ``atpd`` does not run the checks of
    ``django.tasks``. The backport of ``django.tasks`` runs its checks only if it is an installed
    app.
    """
    return [
        message
        for alias, entry in _backend_entries()
        for message in _check_entry(alias, entry.get("QUEUES") or (), entry.get("OPTIONS", {}))
    ]


def _backend_entries() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the alias and the settings of each entry in TASKS whose BACKEND is ATPBackend."""
    tasks = getattr(project, "TASKS", None)
    for alias, entry in tasks.items() if isinstance(tasks, dict) else ():
        try:
            found = import_string(entry["BACKEND"])
        except (AttributeError, ImportError, KeyError, TypeError):
            continue  # django.tasks reports it
        # If no entry has imported it, it stays out, since it would load ``django.tasks``.
        own = sys.modules.get("atp.backend")
        if own is not None and isinstance(found, type) and issubclass(found, own.ATPBackend):
            yield alias, entry


def _check_entry(alias: str, queues: Any, options: Any) -> Iterable[CheckMessage]:
    from .backend import task

    label = f"TASKS[{alias!r}]['OPTIONS']"
    return task.messages(alias, queues, task.BackendOptions(label, options))


# The modules that declare Types


# This check has the tag of the checks of URLs, which import the views. A view might enqueue a Type
# whose module no daemon imports.
@register(Tags.urls)
@with_valid_settings
def check_types(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Warn about Types that the project's views import, but that no daemon imports."""
    if getattr(project, "ROOT_URLCONF", None):
        # Django's own check reports a URLconf that cannot be imported.
        with contextlib.suppress(Exception):
            get_resolver().url_patterns  # noqa: B018 (imports the views)
    return [
        checks.Warning(
            f"The Type {task_type.identifier!r} is declared in {task_type.handler.__module__}, "
            "which no daemon imports.",
            hint=f"{DAEMON_IMPORTS}. Import {task_type.handler.__module__} in a tasks.py.",
            id="atp.W036",
        )
        for task_type in registry.unreached()
    ]

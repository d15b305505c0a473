"""The setting ``ATP``: its keys and defaults, checks of its values, and the webhook targets.

A project writes only the values that differ from the defaults::

ATP = {"LEASE": 60, "RETENTION": timedelta(days=30)}

Times are in seconds, or timedeltas where the annotation says so. ATP reads a value on first use and
keeps it. Django's signal ``setting_changed``, which tests that override settings send, makes ATP
read the values again.
"""

import base64
import binascii
import logging
import os
import re
import tempfile
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast, get_origin, get_type_hints
from urllib.parse import urlsplit

from django.conf import settings as project
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from .exceptions import LONGEST_DELAY
from .options import MAX_RETRIES, check_text, is_pattern
from .text import as_timedelta, did_you_mean, read_memory


class Defaults:
    """The keys of ``settings.ATP``, with their types and defaults.

    The documentation of the settings is generated from this class.
    """

    DATABASE: str = "default"
    """Alias of the queue's database."""

    STORE: str = ""
    """Dotted path of the store class; if empty, ATP chooses one by the database's vendor."""

    STORAGE: str = "default"
    """Alias in STORAGES for large responses and published files."""

    TIMEOUT: timedelta | float | None = timedelta(hours=1)
    """Time-out of attempts, for Types that set none; None: no time-out."""

    MAX_RESTARTS: int = 3
    """Number of attempts that may be lost while running, for Types that set none (RFC 14)."""

    MAX_RETRIES: int = 0
    """Number of retries after attempts that raised, for Types that set none."""

    MAX_MEMORY: int | str | None = None
    """Memory that an attempt may use, as "2GiB", for Types that set none; None: no limit."""

    BACKOFF: timedelta | float = timedelta(seconds=5)
    """Delay before the first retry; the delay before each further retry is twice as long."""

    BACKOFF_MAX: timedelta | float = timedelta(hours=1)
    """Longest delay before a retry."""

    RETENTION: timedelta | float | None = timedelta(days=30)
    """How long terminal Instances are kept, for Types that set no time; None: for ever."""

    MAX_INPUTS_SIZE: int = 1024 * 1024
    """Largest serialized inputs of one Instance, in bytes."""

    MAX_STEP_SIZE: int = 1024 * 1024
    """Largest serialized result of a step, in bytes."""

    MAX_STEPS: int = 1000
    """Maximum number of steps of one Instance."""

    MAX_RESPONSE_INLINE: int = 64 * 1024
    """Size in bytes above which a response is stored as a file."""

    MAX_LOG_RECORDS: int = 1000
    """Messages kept per attempt: the first fifth, then the newest. A line counts those left out."""

    MAX_LOG_MESSAGE: int = 8 * 1024
    """Longest message, in characters; a longer message is cut in the middle."""

    MAX_FILES: int = 1000
    """Maximum number of files that an attempt may publish."""

    LOG_LEVEL: str = "INFO"
    """Lowest level at which ATP captures a handler's log records (standard logging)."""

    ALLOW_PICKLE: bool = False
    """True allows Types to use signed pickle instead of JSON."""

    MIDDLEWARE: list[str] | tuple[str, ...] = ()
    """Dotted paths of the middleware around each attempt, the outermost first."""

    CARRIERS: list[str] | tuple[str, ...] = ()
    """Dotted paths of the carriers, which take values from an enqueue to the handler."""

    SCRATCH_DIR: str | Path = tempfile.gettempdir()
    """Folder in which daemons create the scratch directories of attempts."""

    RELEASE: str = ""
    """Release of the project's code; each daemon writes it to its row."""

    MISFIT_FOR: timedelta | float = timedelta(hours=1)
    """How long an Instance is deferred if its inputs fit no daemon; then it is FAILED."""

    LEASE: float = 30.0
    """How long a daemon may hold its Tasks after it renewed its lease."""

    RENEW_EVERY: float = 5.0
    """Time between two renewals of a lease."""

    KILL_AFTER: float = 26.0
    """Time from the start of the last successful renewal until a daemon kills its workers."""

    STATEMENT_TIMEOUT: float = 5.0
    """Longest time for a daemon's call to the database; a longer call is aborted."""

    POLL_EVERY: float = 1.0
    """Longest time between two scans of the queue for due Tasks."""

    SWEEP_EVERY: float = 1.0
    """Longest time between two searches for lost daemons and missed Instances."""

    SCAN_EVERY: float = 60.0
    """Time between two scans for forgotten Tasks and inconsistent rows."""

    SCAN_AFTER: float = 60.0
    """A scan reports a fault only if it lasts longer than this, and longer than a lease."""

    PURGE_EVERY: float = 60.0
    """Longest time between two removals of Instances whose retention has ended."""

    RELEASE_GRACE: float = 5.0
    """Time between the command to release a running task and its kill."""

    CANCEL_GRACE: float = 10.0
    """Time between the command to cancel a running task and its kill, for Types that set none."""

    KEEP_CONNECTIONS: float = 60.0
    """How long a worker keeps an unused database connection; 0: it closes it at once."""

    MAX_WAITERS: int = 4
    """Clients that may wait (`?wait=`) in one web process; at most its number of threads - 3."""
    MAX_WAITERS_PER_USER: int = 2
    """Clients of one user that may wait in one web process."""
    MAX_ASYNC_WAITERS: int = 1000
    """Clients that may wait in one web process under ASGI, where they need no thread."""
    MAX_ASYNC_WAITERS_PER_USER: int = 500
    """Clients of one user that may wait in one web process under ASGI."""

    EXECUTORS: dict = {}
    """Engines that run attempts on other hosts, by name; each is a dictionary with BACKEND."""

    WEBHOOKS: dict = {}
    """Targets of webhooks by name; each is a dictionary with url, secret and patterns of Types."""

    AUTHORIZE: str = ""
    """Dotted path of the function that restricts users' permissions to Types and lanes."""

    OGC_LANE: str = "atp.ogc.access.lane_of_user"
    """Dotted path of the function that gives clients of OGC API – Processes their collections."""

    OGC_HOSTS: list[str] | tuple[str, ...] = ()
    """Hosts whose addresses clients of OGC API – Processes may name, such as `*.example.org`."""

    OGC_MAX_FETCH: int = 64 * 1024 * 1024
    """Largest input that is fetched from an address, in bytes."""

    METRICS_TOKEN: str = ""
    """Token with which Prometheus may read the metrics; empty: only users may read them."""

    GRACE: float = 30.0
    """Default of ``atpd --grace``: time for running tasks to end when a daemon stops."""


class InvalidSetting(ImproperlyConfigured):
    """A value in ``settings.ATP`` is invalid."""


class Settings:
    """Has an attribute for each key: the project's value, or else the default.

    Reading an attribute raises InvalidSetting if the project's value is invalid.
    """

    def __getattr__(self, name: str) -> Any:
        value = getattr(Defaults, name)
        values = getattr(project, "ATP", {})
        # If they are not a dictionary, the system check reports it.
        if isinstance(values, dict) and name in values:
            value = values[name]
            problem = kind_problem(name, value)
            if problem:
                raise InvalidSetting(problem)
        # From now on Python finds the value without this method, since ATP reads it very often.
        setattr(self, name, value)
        return value


# Its attributes have the names and the types of the defaults.
settings = cast(Defaults, Settings())


def _forget_values(*, setting: str, **kwargs: Any) -> None:
    if setting == "ATP":
        vars(settings).clear()


setting_changed.connect(_forget_values)


# Checks of the values, for ``settings``, the system checks and atpd.

TYPES = get_type_hints(Defaults)
_MAY_BE_ZERO = {"BACKOFF", "BACKOFF_MAX", "RETENTION", "GRACE", "RELEASE_GRACE", "CANCEL_GRACE"}
_MAY_BE_ZERO |= {"KEEP_CONNECTIONS", "MISFIT_FOR"}
# ATP prints and logs problems, so it leaves out the values of these.
SECRET_KEYS = {"METRICS_TOKEN", "WEBHOOKS"}
_COUNTS = {"MAX_RETRIES", "MAX_RESTARTS"}
# The time from the decision to kill until the last worker is dead, in seconds.
KILL_MARGIN = 1.0
# The size of empty inputs, {}, in bytes.
LEAST_INPUTS = 2
# The longest time between two scans of the queue by a daemon, in seconds.
LONGEST_REST = 86400.0
# The maximum length of the name of a release, in characters.
MAX_RELEASE = 64


def kind_problem(name: str, value: Any) -> str | None:
    """Return what is wrong with the type or the range of a value; None if both are valid."""
    hint = TYPES[name]
    kinds = hint.__args__ if isinstance(hint, types.UnionType) else (hint,)
    kinds = tuple(get_origin(kind) or kind for kind in kinds)
    accepted = tuple(kinds) + ((int,) if float in kinds else ())
    if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in kinds):
        expected = " or ".join("None" if k is type(None) else k.__name__ for k in kinds)
        actual = type(value).__name__ if name in SECRET_KEYS else repr(value)
        return f"ATP[{name!r}] must be {expected}, not {actual}."
    is_duration = float in kinds or timedelta in kinds
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not 0 <= value < float("inf"):
            return f"ATP[{name!r}] must be 0 or more and finite, not {value!r}."
        if float in kinds and value == 0 and name not in _MAY_BE_ZERO:
            return f"ATP[{name!r}] must be more than 0."
        if is_duration and value >= LONGEST_DELAY:
            hint = ", or None for no limit" if type(None) in kinds else ""
            return f"ATP[{name!r}] must be less than ten years{hint}."
        if name in _COUNTS and value > MAX_RETRIES:
            return f"ATP[{name!r}] must be {MAX_RETRIES} at most, not {value!r}."
    return None


def setting_problems() -> list[str]:
    """Return the problems with ``settings.ATP``, as a list of sentences."""
    values = getattr(project, "ATP", {})
    if not isinstance(values, dict):
        return [f"ATP must be a dictionary, not {type(values).__name__}."]
    found = []
    for name, value in values.items():
        if name not in TYPES:
            found.append(f"ATP has an unknown key {name!r}.{did_you_mean(name, TYPES)}")
            continue
        problem = kind_problem(name, value)
        if problem:
            found.append(problem)
    return found or [
        *_find_value_problems(),
        *_find_token_problems(),
        *_find_host_problems(),
        *_find_lease_problems(),
        *_find_executor_problems(),
    ]


# The keys of an entry of EXECUTORS; the first two are required.
_EXECUTOR_KEYS = ("BACKEND", "SLOTS", "ADDRESS", "LISTEN", "ENVIRONMENT")
# The most attempts that one daemon has an engine run at a time.
MOST_SLOTS = 1000


def _find_executor_problems() -> list[str]:
    """Return the problems with ATP["EXECUTORS"], as a list of sentences."""
    found: list[str] = []
    for name, options in settings.EXECUTORS.items():
        where = f"ATP['EXECUTORS'][{name!r}]"
        if not isinstance(options, dict):
            found.append(f"{where} must be a dictionary, not {options!r}.")
            continue
        for key in options:
            if key not in _EXECUTOR_KEYS:
                found.append(
                    f"{where} has an unknown key {key!r}.{did_you_mean(key, _EXECUTOR_KEYS)}"
                )
        found += _find_backend_problems(where, options)
        slots = options.get("SLOTS")
        if isinstance(slots, bool) or not isinstance(slots, int) or not 1 <= slots <= MOST_SLOTS:
            found.append(f"{where} needs SLOTS, a whole number from 1 to {MOST_SLOTS}.")
    return found


def _find_backend_problems(where: str, options: dict[str, Any]) -> list[str]:
    """Return the problems with the BACKEND of an executor, and the options that it lacks."""
    path = options.get("BACKEND")
    if not isinstance(path, str):
        return [f"{where} needs BACKEND, as in 'atp.executors.Dask'."]
    near = did_you_mean(path, [f"atp.executors.{name}" for name in ("Dask", "Fork", "Ray")])
    executor = import_string("atp.executors.Executor")
    try:
        backend: Any = import_string(path)
    except ImportError as error:
        return [f"{where}: BACKEND {path!r} cannot be imported: {error}.{near}"]
    if not isinstance(backend, type) or not issubclass(backend, executor):
        return [f"{where}: BACKEND {path!r} must be a subclass of atp.executors.Executor.{near}"]
    required: tuple[str, ...] = getattr(backend, "required", ())
    missing = [name for name in required if not isinstance(options.get(name), str)]
    return [f"{where} needs {name}, since BACKEND is {path!r}." for name in missing]


def _find_token_problems() -> list[str]:
    token = settings.METRICS_TOKEN
    if token.isascii() and token.isprintable() and " " not in token:
        return []
    return ["ATP['METRICS_TOKEN'] must be printable ASCII, without spaces or line ends."]


# A name or a pattern without a port, or an origin without a path.
_HOST = re.compile(r"https?://[^/\s]+|[^/:\s]+")


def _find_host_problems() -> list[str]:
    """Return the problems with ATP["OGC_HOSTS"], whose entries are patterns or origins."""
    return [
        f"ATP['OGC_HOSTS']: {entry!r} must be a name or a pattern such as '*.example.org', or an "
        "origin such as 'http://localhost:8000'."
        for entry in settings.OGC_HOSTS
        if not isinstance(entry, str) or not _HOST.fullmatch(entry)
    ]


def _find_value_problems() -> list[str]:
    """Return the problems with values that have the right type, but cannot be used."""
    found = []
    if settings.MAX_MEMORY is not None:
        try:
            read_memory(settings.MAX_MEMORY)
        except ValueError as error:
            found.append(f"ATP['MAX_MEMORY']: {error}.")
    if len(settings.RELEASE) > MAX_RELEASE or not settings.RELEASE.isprintable():
        found.append(
            f"ATP['RELEASE'] is {settings.RELEASE!r}: must be one line of {MAX_RELEASE} "
            "characters at most."
        )
    levels = logging.getLevelNamesMapping()
    if settings.LOG_LEVEL not in levels:
        found.append(
            f"ATP['LOG_LEVEL'] is {settings.LOG_LEVEL!r}: must be one of {', '.join(levels)}."
            f"{did_you_mean(settings.LOG_LEVEL, levels)}"
        )
    if settings.STORAGE not in project.STORAGES:
        found.append(
            f"ATP['STORAGE'] is {settings.STORAGE!r}, which is not in STORAGES."
            f"{did_you_mean(settings.STORAGE, project.STORAGES)}"
        )
    if not os.path.isdir(settings.SCRATCH_DIR):
        found.append(
            f"ATP['SCRATCH_DIR'] is {str(settings.SCRATCH_DIR)!r}, which is not a directory."
        )
    if settings.MAX_INPUTS_SIZE < LEAST_INPUTS:
        found.append(
            f"ATP['MAX_INPUTS_SIZE'] is {settings.MAX_INPUTS_SIZE}: even empty inputs take "
            f"{LEAST_INPUTS} bytes, so nothing could be enqueued."
        )
    for name in ("POLL_EVERY", "SWEEP_EVERY"):
        if (value := getattr(settings, name)) > LONGEST_REST:
            found.append(
                f"ATP[{name!r}] is {value}: must be at most a day, which is {LONGEST_REST:.0f} s."
            )
    if as_timedelta(settings.BACKOFF) > as_timedelta(settings.BACKOFF_MAX):
        found.append("ATP['BACKOFF'] is longer than ATP['BACKOFF_MAX'].")
    found += webhook_problems(settings.WEBHOOKS)
    if settings.STORE:
        try:
            import_string(settings.STORE)
        except ImportError as error:
            found.append(f"ATP['STORE'] is {settings.STORE!r}: {error}.")
    return found


def _find_lease_problems() -> list[str]:
    """Return the problems with the times on which guarantee G3 depends.

    A daemon must kill its workers before another daemon may take their Tasks.
    """
    found = []
    if settings.KILL_AFTER + KILL_MARGIN > settings.LEASE:
        found.append(
            f"ATP['KILL_AFTER'] is {settings.KILL_AFTER} s and ATP['LEASE'] {settings.LEASE} s: "
            f"workers must be killed at least {KILL_MARGIN} s before the lease ends, or another "
            "daemon may start a task that is still running here."
        )
    if settings.RENEW_EVERY + settings.STATEMENT_TIMEOUT >= settings.KILL_AFTER:
        found.append(
            f"ATP['RENEW_EVERY'] ({settings.RENEW_EVERY} s) and ATP['STATEMENT_TIMEOUT'] "
            f"({settings.STATEMENT_TIMEOUT} s) together must be less than ATP['KILL_AFTER'] "
            f"({settings.KILL_AFTER} s). Otherwise one late renewal would kill all workers."
        )
    return found


# The targets of webhooks in ``ATP["WEBHOOKS"]``. Only this setting has addresses to which ATP
# connects: the database has only the names of targets (G14).

# The keys of a target that list patterns of Types, each with the names of the hooks that it sets.
HOOKS_BY_KEY = {
    "on": ("on_finished", "on_failed"),
    "on_finished": ("on_finished",),
    "on_failed": ("on_failed",),
}
_KEYS = ("url", "secret", *HOOKS_BY_KEY, "allow_http")
_PREFIX = "whsec_"
# The limits of the length of the key in a secret, in bytes, by the Standard Webhooks.
_SHORTEST, _LONGEST = 24, 64


@dataclass(frozen=True)
class WebhookTarget:
    """A system to which ATP sends a message when an Instance ends.

    ``keys`` are the keys that sign the messages, the newest first. ``patterns`` are pairs of a
    hook's name, such as "on_failed", and a pattern of Types, such as "dem.*".
    """

    name: str
    url: str
    keys: tuple[bytes, ...]
    patterns: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        # Without the address, which may contain a secret.
        return f"<webhook {self.name}>"


def webhook_target(name: str, entry: Mapping[str, Any]) -> WebhookTarget:
    """Return the WebhookTarget for an entry of ``ATP["WEBHOOKS"]``, which must be valid."""
    return WebhookTarget(
        name,
        entry["url"],
        tuple(key for key in map(_read_key, _as_list(entry["secret"])) if key is not None),
        tuple(
            (on, each)
            for key, names in HOOKS_BY_KEY.items()
            for each in entry.get(key, ())
            for on in names
        ),
    )


def webhook_problems(entries: Mapping[Any, Any]) -> Iterator[str]:
    """Yield the problems with ``ATP["WEBHOOKS"]``, as sentences."""
    for name, target in entries.items():
        label = f"ATP['WEBHOOKS'][{name!r}]"
        problem = _find_name_problem(name)
        if problem:
            yield f"ATP['WEBHOOKS']: {problem}"
        elif not isinstance(target, Mapping):
            yield f"{label} must be a dictionary, not {type(target).__name__}."
        else:
            yield from (f"{label}{problem}" for problem in _find_target_problems(target))


def _find_name_problem(name: Any) -> str:
    try:
        check_text("the name of a target", name, empty=False)
    except ValueError as error:
        return str(error)
    return ""


def _find_target_problems(target: Mapping[Any, Any]) -> Iterator[str]:
    for key in target:
        if key not in _KEYS:
            yield f" has an unknown key {key!r}.{did_you_mean(str(key), _KEYS)}"
    for key in ("url", "secret"):
        if key not in target:
            yield f" has no {key!r}."
    allows = target.get("allow_http", False)
    if not isinstance(allows, bool):
        yield f"['allow_http'] must be True or False, not {allows!r}."
    if "url" in target:
        problem = _find_url_problem(target["url"], allows is True)
        if problem:
            yield f"['url']: {problem}"
    if "secret" in target:
        secrets = _as_list(target["secret"])
        if not secrets or any(_read_key(each) is None for each in secrets):
            # Without the value, because this is printed.
            yield (
                f"['secret'] must be {_PREFIX!r} and {_SHORTEST} to {_LONGEST} random bytes in "
                "base64, or a list of such, the newest first."
            )
    for key in HOOKS_BY_KEY:
        patterns = target.get(key, ())
        if not isinstance(patterns, (list, tuple)) or not all(map(is_pattern, patterns)):
            yield f"[{key!r}] must be a list of patterns of Types, as ['dem.*'], not {patterns!r}."


def _find_url_problem(url: Any, allows_http: bool) -> str:
    if not isinstance(url, str) or not url.isprintable() or " " in url:
        return "it must be the text of an address, without spaces."
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return f"it is not an address: {error}."
    if not f"{parts.path}{parts.query}".isascii():
        return "its path and query must be ASCII: percent-encode them."
    if parts.scheme not in ("https", "http") or not parts.hostname:
        return "it must begin with https:// and a host."
    if parts.username is not None or parts.fragment:
        return "it must have no user, no password and no '#'."
    if parts.scheme == "http" and not allows_http:
        return "it must begin with https://, unless the target has 'allow_http': True."
    return ""


def _as_list(secret: Any) -> list[Any]:
    return list(secret) if isinstance(secret, (list, tuple)) else [secret]


def _read_key(secret: Any) -> bytes | None:
    """Return the key that a webhook's secret contains; None if the secret is invalid."""
    if not isinstance(secret, str) or not secret.startswith(_PREFIX):
        return None
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if _SHORTEST <= len(key) <= _LONGEST else None

"""The settings of ATP: the keys of ``settings.ATP`` and their defaults.

A project writes only what it wants different::

    ATP = {"LEASE": 60, "RETENTION": timedelta(days=30)}

Times are in seconds, or timedeltas where the annotation says so. A value is
read when it is first used, and again after Django's ``setting_changed``, which
tests that override settings send.
"""

import difflib
import logging
import os
import tempfile
import types
from datetime import timedelta
from typing import get_type_hints

from django.conf import settings as project
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from .wording import read_size


class InvalidSetting(ImproperlyConfigured):
    """A value in ``settings.ATP`` is of the wrong kind."""


class Defaults:
    """Typed attributes: the name is the key, the value the default."""

    DATABASE: str = "default"
    """Alias of the database that holds the queue."""

    STORE: str = ""
    """Dotted path of the store class; empty chooses by the database's vendor."""

    STORAGE: str = "default"
    """Alias in STORAGES for large responses and published files."""

    TIMEOUT: timedelta | float | None = timedelta(hours=1)
    """Time-out of Types that state none; None never times out."""

    MAX_RESTARTS: int = 3
    """Attempts that may be lost while running, for Types that state none (RFC 14)."""

    MAX_RETRIES: int = 0
    """Attempts that may raise and be tried again, for Types that state none."""

    MAX_MEMORY: int | str | None = None
    """What an attempt may take of memory, as "2GiB", if its Type says nothing; None: no limit."""

    BACKOFF: timedelta | float = timedelta(seconds=5)
    """Delay before the first retry; each further one waits twice as long."""

    BACKOFF_MAX: timedelta | float = timedelta(hours=1)
    """Longest delay before a retry."""

    RETENTION: timedelta | float | None = None
    """How long terminal Instances are kept; None is for ever (RFC 14)."""

    MAX_INPUTS_SIZE: int = 1024 * 1024
    """Largest serialized inputs of one Instance, in bytes."""

    MAX_RESPONSE_INLINE: int = 64 * 1024
    """Responses larger than this many bytes are stored as a file."""

    MAX_LOG_RECORDS: int = 1000
    """Messages kept per attempt; of what a handler logs beyond that one line tells."""

    MAX_LOG_MESSAGE: int = 8 * 1024
    """Longest message kept, in characters; longer ones are cut in the middle."""

    MAX_FILES: int = 1000
    """Files that an attempt may publish."""

    LOG_LEVEL: str = "INFO"
    """Lowest level of standard logging that is captured from handlers."""

    ALLOW_PICKLE: bool = False
    """Whether Types may ask for signed pickle instead of JSON."""

    SCRATCH_DIR: str = tempfile.gettempdir()
    """Where scratch directories of attempts are made."""

    LEASE: float = 30.0
    """For how long a renewal entitles a daemon to hold its Tasks."""

    RENEW_EVERY: float = 5.0
    """Time between two renewals."""

    KILL_AFTER: float = 26.0
    """Workers are killed this long after the last successful renewal was sent."""

    STATEMENT_TIMEOUT: float = 5.0
    """A call to the database that takes longer is cut off."""

    POLL_EVERY: float = 1.0
    """Longest time between two looks for what is due, and for requests on what runs."""

    SWEEP_EVERY: float = 1.0
    """Longest time between two looks for lost daemons and missed Instances."""

    SCAN_EVERY: float = 60.0
    """Time between two scans for what was forgotten or does not fit together."""

    SCAN_AFTER: float = 60.0
    """A scan reports what has been wrong for longer than this, and than the lease."""

    PURGE_EVERY: float = 60.0
    """Time between two removals of what retention allows to remove."""

    RELEASE_GRACE: float = 5.0
    """Time between asking a handler to stop and killing it."""

    CANCEL_GRACE: float = 10.0
    """Time between asking to cancel what runs and killing it, for Types that state none."""

    GRACE: float = 30.0
    """Default of ``atpd --grace``: time that running tasks get when a daemon stops."""


class Settings:
    """What the project says of each key, and else its default. Raises InvalidSetting."""

    def __getattr__(self, name):
        value = getattr(Defaults, name)
        given = getattr(project, "ATP", {})
        if name in given:
            value = given[name]
            problem = _type_problem(name, value)
            if problem:
                raise InvalidSetting(problem)
        # Found without this method from now on: most are used all the time.
        setattr(self, name, value)
        return value


settings = Settings()
_HINTS = get_type_hints(Defaults)


def _read_again(*, setting, **kwargs):
    if setting == "ATP":
        vars(settings).clear()


setting_changed.connect(_read_again)

# From the decision to kill until the last worker is dead.
KILL_MARGIN = 1.0


def problems():
    """Return what is wrong with ``settings.ATP``, as a list of sentences."""
    given = getattr(project, "ATP", {})
    if not isinstance(given, dict):
        return [f"ATP must be a dictionary, not {type(given).__name__}."]
    found = []
    for name, value in given.items():
        if name not in _HINTS:
            found.append(f"ATP has an unknown key {name!r}.{did_you_mean(name, _HINTS)}")
            continue
        problem = _type_problem(name, value)
        if problem:
            found.append(problem)
    return found or _value_problems() + _lease_problems()


def _value_problems():
    """Values of the right kind that cannot be used."""
    found = []
    if settings.MAX_MEMORY is not None:
        try:
            read_size(settings.MAX_MEMORY)
        except ValueError as error:
            found.append(f"ATP['MAX_MEMORY']: {error}.")
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
        found.append(f"ATP['SCRATCH_DIR'] is {settings.SCRATCH_DIR!r}, which is not a directory.")
    if seconds(settings.BACKOFF) > seconds(settings.BACKOFF_MAX):
        found.append("ATP['BACKOFF'] is longer than ATP['BACKOFF_MAX'].")
    if settings.STORE:
        try:
            import_string(settings.STORE)
        except ImportError as error:
            found.append(f"ATP['STORE'] is {settings.STORE!r}: {error}.")
    return found


def _lease_problems():
    """The rule behind G3: workers are killed before their Tasks may be taken away."""
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
            f"({settings.KILL_AFTER} s): one renewal that is late would kill all workers."
        )
    return found


def did_you_mean(word, possibilities):
    """Return " Did you mean …?" for the closest of ``possibilities``, or an empty string."""
    close = difflib.get_close_matches(str(word), [str(p) for p in possibilities], n=1, cutoff=0.6)
    if not close:
        upper = {str(p).upper(): str(p) for p in possibilities}
        close = difflib.get_close_matches(str(word).upper(), upper, n=1, cutoff=0.6)
        close = [upper[c] for c in close]
    return f" Did you mean {close[0]!r}?" if close else ""


def seconds(value):
    """Return a duration given in seconds or as a timedelta as a timedelta, None as None."""
    if value is None or isinstance(value, timedelta):
        return value
    return timedelta(seconds=value)


def _type_problem(name, value):
    hint = _HINTS[name]
    kinds = hint.__args__ if isinstance(hint, types.UnionType) else (hint,)
    accepted = tuple(kinds) + ((int,) if float in kinds else ())
    if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join("None" if k is type(None) else k.__name__ for k in kinds)
        return f"ATP[{name!r}] must be {wanted}, not {value!r}."
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not 0 <= value < float("inf"):
            return f"ATP[{name!r}] must be 0 or more and finite, not {value!r}."
        if float in kinds and value == 0 and name not in _MAY_BE_ZERO:
            return f"ATP[{name!r}] must be more than 0."
    return None


_MAY_BE_ZERO = {"BACKOFF", "BACKOFF_MAX", "RETENTION", "GRACE", "RELEASE_GRACE", "CANCEL_GRACE"}

"""The problems with ``settings.ATP``, for the system checks and for atpd."""

import logging
import os

from django.conf import settings as project
from django.utils.module_loading import import_string

from ..words.hints import did_you_mean, seconds
from ..words.wording import read_memory
from . import settings, webhooks
from .kinds import HINTS, kind_problem

# From the decision to kill until the last worker is dead, in seconds.
KILL_MARGIN = 1.0
# The size of empty inputs, {}, in bytes.
LEAST_INPUTS = 2
# The longest time between two looks of a daemon, in seconds.
LONGEST_REST = 86400.0
# The longest name of a release, in characters.
MAX_RELEASE = 64


def problems() -> list[str]:
    """Return the problems with ``settings.ATP``, as a list of sentences."""
    given = getattr(project, "ATP", {})
    if not isinstance(given, dict):
        return [f"ATP must be a dictionary, not {type(given).__name__}."]
    found = []
    for name, value in given.items():
        if name not in HINTS:
            found.append(f"ATP has an unknown key {name!r}.{did_you_mean(name, HINTS)}")
            continue
        problem = kind_problem(name, value)
        if problem:
            found.append(problem)
    return found or _value_problems() + _token_problems() + _lease_problems()


def _token_problems() -> list[str]:
    token = settings.METRICS_TOKEN
    if token.isascii() and token.isprintable() and " " not in token:
        return []
    return ["ATP['METRICS_TOKEN'] must be printable ASCII, without spaces and line ends."]


def _value_problems() -> list[str]:
    """Return the problems with values of the right kind that cannot be used."""
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
            f"ATP['MAX_INPUTS_SIZE'] is {settings.MAX_INPUTS_SIZE}: no inputs at all take "
            f"{LEAST_INPUTS} bytes, so nothing could be enqueued."
        )
    for name in ("POLL_EVERY", "SWEEP_EVERY"):
        if (value := getattr(settings, name)) > LONGEST_REST:
            found.append(
                f"ATP[{name!r}] is {value}: with more than a day, {LONGEST_REST:.0f} s, a daemon "
                "would hardly ever look."
            )
    if seconds(settings.BACKOFF) > seconds(settings.BACKOFF_MAX):
        found.append("ATP['BACKOFF'] is longer than ATP['BACKOFF_MAX'].")
    found += webhooks.problems(settings.WEBHOOKS)
    if settings.STORE:
        try:
            import_string(settings.STORE)
        except ImportError as error:
            found.append(f"ATP['STORE'] is {settings.STORE!r}: {error}.")
    return found


def _lease_problems() -> list[str]:
    """Return the breaches of the rule behind G3.

    The rule: workers are killed before another daemon may take their Tasks.
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
            f"({settings.KILL_AFTER} s): one renewal that is late would kill all workers."
        )
    return found

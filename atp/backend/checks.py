"""The system checks of an entry in TASKS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.core import checks

from . import declared
from .options import queue_problems

if TYPE_CHECKING:
    from .options import BackendOptions


def of_installation(alias: str) -> Iterator[checks.CheckMessage]:
    """Yield an error if ATP is not installed: then none of its own checks is run."""
    if not apps.is_installed("atp"):
        yield checks.Error(f"TASKS[{alias!r}]: {declared.NOT_INSTALLED}", id="atp.E011")


def messages(alias: str, queues: Any, given: BackendOptions) -> Iterator[checks.CheckMessage]:
    """Yield the messages about the OPTIONS and the QUEUES of an entry."""
    for problem in given.problems:
        yield checks.Error(problem, id="atp.E010")
    for problem in queue_problems(f"TASKS[{alias!r}]['QUEUES']", queues):
        yield checks.Error(
            problem,
            hint="A queue is a collection of ATP: a line of at most 200 printable characters.",
            id="atp.E012",
        )
    for pattern, hint in given.unmatched(declared.paths()):
        yield checks.Warning(
            f"{given.told}['types'][{pattern!r}] is the path of no task.{hint}",
            hint="The modules of tasks are those called tasks.py in installed apps, and those "
            "that OPTIONS['modules'] names.",
            id="atp.W013",
        )

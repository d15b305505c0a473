"""InlineBackend runs tasks of ``django.tasks`` at the commit, for tests."""

from __future__ import annotations

from typing import Any

from ..backend import ATPBackend, frameworks
from ..conf import settings
from .draining import after_commit, drains


class InlineBackend(ATPBackend):
    """Enqueues like ATPBackend, and runs all due tasks in this process at each commit.

    If no transaction is open except those of TestCase, the tasks run at once, and ``enqueue()``
    returns a finished result. If a task raises an exception, its result contains the exception.
    """

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        if drains.are_running:
            drains.call_after(_drain_at_commit)
            return result
        _drain_at_commit()
        try:
            return self.get_result(result.id)
        except frameworks.error("TaskResultDoesNotExist"):
            return result  # its Type keeps no FINISHED Instances


def _drain_at_commit() -> None:
    after_commit(settings.DATABASE, _drain)


def _drain() -> None:
    from .kit import Kit

    Kit().drain(raises=False)

"""InlineBackend: in a test, tasks of ``django.tasks`` run at the commit, by ATP."""

from __future__ import annotations

from typing import Any

from ..backend import ATPBackend, frameworks
from ..conf import settings
from .draining import after_commit, drains


class InlineBackend(ATPBackend):
    """Enqueues as ATPBackend does, and runs all due tasks at the commit, in this process.

    If no transaction is open, or only that of a TestCase, the tasks run at once, and
    ``enqueue()`` returns a result that has ended. An exception of a task is in its result.
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
            return result  # its Type keeps nothing that has FINISHED


def _drain_at_commit() -> None:
    after_commit(settings.DATABASE, _drain)


def _drain() -> None:
    from .kit import Kit

    Kit().drain(raises=False)

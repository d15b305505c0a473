"""InlineBackend: in a test, tasks of ``django.tasks`` run at the commit, by ATP."""

from __future__ import annotations

from typing import Any

from ..backend import ATPBackend
from ..conf import settings
from .commits import after_commit


class InlineBackend(ATPBackend):
    """Enqueues as ATPBackend does, and runs all due tasks at the commit, in this process.

    If no transaction is open, or only that of a TestCase, the tasks run at once, and
    ``enqueue()`` returns a result that has ended. An exception of a task is in its result.
    """

    # Whether a drain is running: it also runs what its tasks enqueue.
    _is_draining = False

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        if InlineBackend._is_draining:
            return result
        after_commit(settings.DATABASE, _drain)
        return self.get_result(result.id)


def _drain() -> None:
    from .kit import Kit

    InlineBackend._is_draining = True
    try:
        Kit().drain(raises=False)
    finally:
        InlineBackend._is_draining = False

"""InlineBackend: tasks of ``django.tasks`` run in tests at the commit, by ATP."""

from __future__ import annotations

from typing import Any

from ..backend import ATPBackend
from ..conf import settings
from .commits import after_commit


class InlineBackend(ATPBackend):
    """Enqueues as ATPBackend does, and runs what is due at the commit, in this process.

    Where no transaction is open, or none but that of a TestCase, that is at once, and the
    result that is returned has ended. What a task raises stands in its result.
    """

    # Whether one is draining: what tasks enqueue is drained by that.
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

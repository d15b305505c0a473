"""ATPTaskContext: the context of ``django.tasks`` for a task, with ATP's own context in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .frameworks import TaskContext

if TYPE_CHECKING:
    from ..authoring.context import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class ATPTaskContext(TaskContext):
    """The first argument of a task that takes a context.

    ``task_result`` and ``attempt`` are those of ``django.tasks``. ``atp`` is the
    :class:`~atp.Context` of the attempt: progress, check, scratch, publish, step.
    """

    atp: Context | Any

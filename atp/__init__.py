"""ATP: asynchronous task processing for Django, with the database as the queue."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .authoring.context import Context as Context
    from .authoring.context import Output as Output
    from .authoring.loop_context import LoopContext as LoopContext
    from .authoring.task_type import TaskType as TaskType
    from .authoring.task_type import task_type as task_type
    from .exceptions import Defer as Defer
    from .exceptions import Fatal as Fatal
    from .exceptions import Interrupted as Interrupted
    from .exceptions import Retry as Retry
    from .exceptions import Throttled as Throttled
    from .exceptions import Unavailable as Unavailable
    from .graphs.builder import Graph as Graph
    from .graphs.builder import result as result
    from .operations.hooks import on_failed as on_failed
    from .operations.hooks import on_finished as on_finished
    from .schedules.declaring import schedule as schedule
    from .tailers.tailer import tailer as tailer


__version__ = "0.1.0"

# Imported when first used: Django imports this package before it can import models.
_PUBLIC = {
    "task_type": "authoring.task_type",
    "TaskType": "authoring.task_type",
    "on_finished": "operations.hooks",
    "on_failed": "operations.hooks",
    "schedule": "schedules.declaring",
    "tailer": "tailers.tailer",
    "Graph": "graphs.builder",
    "result": "graphs.builder",
    "Context": "authoring.context",
    "Output": "authoring.context",
    "LoopContext": "authoring.loop_context",
    "Retry": "exceptions",
    "Defer": "exceptions",
    "Fatal": "exceptions",
    "Interrupted": "exceptions",
    "Throttled": "exceptions",
    "Unavailable": "exceptions",
}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])

"""Running tasks in a worker: the context, the return value, and the signals around."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from django.db import Error
from django.utils import timezone

from .. import signals
from ..daemon.shared import outcome as outcomes
from ..daemon.shared.outcome import Kind
from ..payload import binding, codec
from ..states import Event
from ..words.raised import Unusable
from . import declared, errors, frameworks
from .context import ATPTaskContext
from .frameworks import TaskResultStatus, normalize_json
from .normalizing import with_text_keys
from .running_result import RunningResult

if TYPE_CHECKING:
    from ..authoring.context import Context
    from ..store.values import Claimed

# The result of each attempt that runs in this process.
_running: WeakKeyDictionary[Any, RunningResult] = WeakKeyDictionary()

# The outcomes that the worker does not decide alone, or cannot know.
_OPEN = frozenset({Kind.INTERRUPTED, Kind.GONE, Kind.CUT, Kind.SHUT_OUT})


class Attempt:
    """An attempt of a task: the arguments and the return value of the task's function."""

    def __init__(self, context: Context, args: Any, kwargs: Any) -> None:
        self._context = context
        self._result = _running.get(context) or RunningResult.of(context, args, kwargs)
        self._result.give(args, kwargs)

    def arguments(self, args: Any, *, takes_context: bool) -> Any:
        """Return the positional arguments: the task's context comes first, if it takes one."""
        if not takes_context:
            return args
        return ATPTaskContext(task_result=self._result, atp=self._context), *args

    def look(self) -> None:
        """Read the values of the result that are not known yet, if the database answers."""
        with suppress(Error):
            self._result.look()

    def returned(self, value: Any) -> Any:
        """Note the return value as ``django.tasks`` normalizes it, and return it.

        Raises Unusable if it cannot be normalized.
        """
        try:
            value = with_text_keys(normalize_json(value))
        except (TypeError, ValueError) as error:
            raise Unusable from error
        object.__setattr__(self._result, "_return_value", value)
        return value


def _started(context: Context, claimed: Claimed, **_: Any) -> None:
    """Send ``task_started`` for a task: its handler is about to be entered."""
    if declared.find(context.type) is None:
        return
    args, kwargs = binding.unbind(codec.decode(claimed.inputs))
    result = _running[context] = RunningResult.of(context, args, kwargs)
    _send("task_started", result)


def _ended(
    context: Context, claimed: Claimed, exception: Any, outcome: outcomes.Outcome, **_: Any
) -> None:
    """Send ``task_finished`` for a task that has ended: no retry, and the worker decides alone."""
    result = _running.pop(context, None)
    if result is None or outcome.kind in _OPEN:
        return
    event = outcomes.move(outcome, claimed).event
    if event == Event.FINISH:
        result.end(TaskResultStatus.SUCCESSFUL, timezone.now())
        _send("task_finished", result)
    elif event == Event.FAIL:
        result.errors.append(errors.error_of(outcome.raised, outcome.message))
        result.end(TaskResultStatus.FAILED, timezone.now())
        if exception is None:
            _send("task_finished", result)
            return
        try:
            raise exception
        except BaseException:  # receivers look at sys.exc_info()
            _send("task_finished", result)


def _send(name: str, result: RunningResult) -> None:
    """Send this signal of each package; a receiver that raises does not harm the task."""
    for signal in frameworks.signals(name):
        if any(is_async for *_, is_async in signal.receivers):
            # Attributes of the result cannot be awaited.
            with suppress(Error):
                result.look()
        signal.send_robust(sender=result.sender, task_result=result)


signals.handler_started.connect(_started)
signals.handler_ended.connect(_ended)

"""All exceptions: those that ATP raises, and those that a handler raises to control its end.

Errors of ATP are ATPErrors. Those about invalid arguments are also ValueErrors, those about
something that does not exist LookupErrors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from django.conf import settings as project
from django.utils import timezone

if TYPE_CHECKING:
    from .commands import DaemonCommand, Mode
    from .states import Event, State


__all__ = [  # noqa: RUF022 (sorted by who raises them)
    "LONGEST_DELAY",
    "Retry",
    "Defer",
    "Throttled",
    "Unavailable",
    "Fatal",
    "Interrupted",
    "TaskFailed",
    "Stale",
    "Cancelled",
    "Dropped",
    "Missed",
    "Upstream",
    "ATPError",
    "QueueFull",
]

# Ten years, in seconds: the longest delay that ATP accepts.
LONGEST_DELAY = 315_360_000.0


# Exceptions that a handler raises, and those that stand for another end of an Instance.


class Retry(Exception):
    """A handler raises Retry to be tried again later.

    It uses up one of the Type's ``max_retries``; ATP logs it without a traceback. ``after`` is the
    delay, in seconds or as a timedelta; by default the Type's backoff decides.
    """

    def __init__(self, message: str = "", *, after: timedelta | float | None = None) -> None:
        super().__init__(message)
        self.after = None if after is None else _check_delay("Retry", after)


class Defer(Exception):
    """A handler raises Defer to run later, without a failure. It never uses up a retry.

    ``after`` is the delay, in seconds or as a timedelta. It must be more than 0: otherwise an
    Instance that always defers would run again and again without a pause.
    """

    def __init__(self, message: str = "", *, after: timedelta | float) -> None:
        super().__init__(message)
        self.after = _check_delay("Defer", after, is_from_zero=False)


class Throttled(Defer):
    """A handler raises Throttled if its Type's downstream refuses calls. It never uses up a retry.

    ``after`` is the delay that the downstream asks for: the unchanged HTTP header Retry-After, in
    seconds or as a date; a timedelta; or None. A past time counts as 0, more than an hour as an
    hour, and a value that cannot be read as None. If the Type has no downstream, Throttled is a
    :class:`Defer` by at least ``LEAST`` seconds.
    """

    # The shortest delay in seconds. Without a delay the attempts would follow without a pause.
    LEAST = 1.0

    def __init__(self, message: str = "", *, after: object = None) -> None:
        asked = read_retry_after(after, datetime.now(UTC))
        text = f"{message} ({asked.told})" if message and asked.told else message or asked.told
        super().__init__(text, after=max(self.LEAST, asked.after or 0.0))
        self.asked = asked.after


class Unavailable(Exception):
    """A handler raises Unavailable if its Type's downstream fails or cannot be reached.

    It uses up no retry. ``after`` is as in :class:`Throttled`. If the Type has no downstream,
    Unavailable is an error like any other, and uses up a retry.
    """

    def __init__(self, message: str = "", *, after: object = None) -> None:
        asked = read_retry_after(after, datetime.now(UTC))
        super().__init__(f"{message} ({asked.told})" if asked.told else message)
        self.asked = asked.after


class Fatal(Exception):
    """A handler raises Fatal if another attempt would not help: the Instance is FAILED at once.

    ``fingerprint`` is a word that the handler chooses. All failures of one Type with the same
    fingerprint are one error group, whatever their messages are and wherever they were raised.
    """

    def __init__(self, *args: object, fingerprint: str = "") -> None:
        super().__init__(*args)
        if not isinstance(fingerprint, str):
            raise ValueError(f"Fatal(fingerprint={fingerprint!r}): must be text")
        self.fingerprint = fingerprint


class Interrupted(BaseException):
    """ATP raises Interrupted in ``context.check()``, or anywhere in a handler, to end the attempt.

    It derives from BaseException so that ``except Exception`` in a handler does not catch it. A
    handler may clean up, and must then let it pass to ATP.
    """


class TaskFailed(Exception):
    """An Instance is FAILED for another reason than an exception of its handler.

    Nothing raises this class or its subclasses: results of django.tasks name them as errors.
    """


class Stale(TaskFailed):
    """More attempts of the Instance were lost than allowed."""


class Cancelled(TaskFailed):
    """Somebody has cancelled the Instance."""


class Dropped(TaskFailed):
    """A gate dropped the Instance."""


class Missed(TaskFailed):
    """The Instance was not started before its ``start_before``."""


class Upstream(TaskFailed):
    """A node of its graph that the Instance depends on failed."""


class Unusable(Exception):
    """ATP raises this ``from`` an error about values that would fail in each further attempt too.

    The Instance is FAILED for the reason FATAL, with the message of that error.
    """


class IncompatibleInputs(Exception):
    """The inputs are incompatible with this process's handler; another release may accept them.

    The Instance is deferred. The message says why the inputs are incompatible.
    """


def dotted_path(error: BaseException) -> str:
    """Return the dotted path of an exception's class, even if the class overrides its names."""
    kind = type(error)
    names = []
    for slot in ("__module__", "__qualname__"):
        try:
            name = type.__dict__[slot].__get__(kind)
        except AttributeError:
            name = None
        names.append(str.__str__(name) if isinstance(name, str) else "?")
    return ".".join(names).replace("\x00", "?").encode("utf-8", "replace").decode()


def _check_delay(name: str, after: timedelta | float, *, is_from_zero: bool = True) -> float:
    """Return a delay in seconds. Raises ValueError if it is out of range."""
    after = after.total_seconds() if isinstance(after, timedelta) else float(after)
    if not 0 <= after <= LONGEST_DELAY or not (after or is_from_zero):
        bounds = "from 0 to" if is_from_zero else "more than 0 and at most"
        raise ValueError(f"{name}(after={after:g}): must be {bounds} {LONGEST_DELAY:.0f} s")
    return after


# Errors of ATP.


class ATPError(Exception):
    """The base class of ATP's errors.

    ``call`` is the number of the call or row that the error is about, if the caller gave several.
    """

    call: int


class QueueFull(ATPError):
    """Too many Instances wait in a Type or a lane, so nothing was enqueued.

    ``scope`` is the Type, or the Type and the collection, in words. ``waiting`` is the number of
    waiting Instances, counted up to a little more than ``limit``. ``limit`` is the ``max_waiting``
    that was reached; None if only ``max_wait`` is set. ``oldest`` is how long the oldest due
    Instance has waited, as a timedelta; None if ATP did not read it. ``retry_after`` is in seconds,
    from 1 to 600.
    """

    def __init__(
        self,
        message: str,
        *,
        scope: str = "",
        waiting: int = 0,
        limit: int | None = None,
        oldest: timedelta | None = None,
        retry_after: float = 30.0,
    ) -> None:
        super().__init__(message)
        self.scope = scope
        self.waiting = waiting
        self.limit = limit
        self.oldest = oldest
        self.retry_after = retry_after


# Tracebacks show the module from which applications import them.
for _name in __all__:
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = "atp.exceptions"


class NotMigrated(ATPError):
    """The queue's database lacks tables or columns; the message names the command to run."""


class UnknownType(ATPError, LookupError):
    """No Type with this identifier is declared or registered."""


class UnregisteredHandler(UnknownType):
    """The Type is registered in the database, but this process has no handler for it."""


class TypeInUse(ATPError):
    """A Type cannot be unregistered while Instances of it exist (RFC 14)."""


class InvalidType(ATPError, ValueError):
    """The parameters of a Type's declaration are invalid."""


class InvalidOption(ATPError, ValueError):
    """An option of an enqueue is unknown or out of range."""


class InvalidGate(ATPError, ValueError):
    """A gate cannot be set: its target or its opening time is invalid."""


class GateChanged(ATPError):
    """Somebody else has set the gate meanwhile. ``gate`` is the current Gate, None if open."""

    def __init__(self, message: str, *, gate: Any = None) -> None:
        super().__init__(message)
        self.gate = gate


class IllegalSchedule(ATPError):
    """The schedule does not allow the operation.

    For example, a schedule that code declares cannot be deleted.
    """


class UnknownSchedule(ATPError, LookupError):
    """No schedule has this identifier."""


class ScheduleChanged(ATPError):
    """Somebody else has changed the schedule meanwhile. ``schedule`` is its current row."""

    def __init__(self, message: str, *, schedule: object = None) -> None:
        super().__init__(message)
        self.schedule = schedule


class InvalidLimit(ATPError, ValueError):
    """A limit or a weight cannot be read, or is out of range."""


class UnknownDownstream(ATPError, LookupError):
    """No registered Type names this downstream."""


class DownstreamChanged(ATPError):
    """A downstream is not in the expected state. ``downstream`` is its current row."""

    def __init__(self, message: str, *, downstream: object = None) -> None:
        super().__init__(message)
        self.downstream = downstream


class InvalidSchedule(ATPError, ValueError):
    """The parameters of a schedule are invalid.

    ``parameter`` is the name of the invalid one ("cron", "every", "timezone"), or None.
    """

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class InvalidGraph(ATPError, ValueError):
    """A graph is invalid: for example, it has a cycle, or two nodes have the same name.

    ``parameter`` is the name of the invalid parameter ("after", "name", "on_failure"), or None.
    """

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class UnknownGraph(ATPError, LookupError):
    """No graph has this uuid."""


class NoResult(ATPError, LookupError):
    """The result of a node does not exist, or has no such key; the message says which."""


class UnknownErrorGroup(ATPError, LookupError):
    """No error group has this name, or several names of error groups begin with it."""


class GraphClosed(ATPError):
    """Nodes cannot be added to the graph any more, or not before the given node."""


class InvalidInputs(ATPError, ValueError, TypeError):
    """The inputs are invalid for the handler or the contract.

    ``argument`` names the first invalid argument, or is None. ``problems`` are pairs of path and
    message, one for each problem with the contract.
    """

    problems: Sequence[tuple[str, str]] = ()

    def __init__(self, message: str, *, argument: str | None = None) -> None:
        super().__init__(message)
        self.argument = argument


class NotSerializable(ATPError, ValueError):
    """A value cannot be serialized without loss."""


class TooLarge(ATPError, ValueError):
    """A serialized value exceeds the limit of its kind."""


class CorruptData(ATPError, ValueError):
    """Stored data cannot be read: it is damaged, or its signature is wrong."""


class DuplicateIdentifier(ATPError, ValueError):
    """An Instance of the Type already has this identifier. ``instance`` is that Instance."""

    def __init__(self, message: str, instance: Any = None) -> None:
        super().__init__(message)
        self.instance = instance


class UniqueTaken(DuplicateIdentifier):
    """A live Instance of the Type has this unique key. ``instance`` is that Instance, unchanged."""


class InvalidPageKey(ATPError, ValueError):
    """A page key is malformed, or belongs to another list."""


class InvalidSelection(ATPError, ValueError):
    """A filter of a list is invalid: its name or its value is unknown.

    ``errors`` are pairs of the name of a filter and the problem with it.
    """

    def __init__(self, message: str, *, errors: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.errors = errors


class UnknownInstance(ATPError, LookupError):
    """No Instance with this uuid or identifier exists."""


class IllegalTransition(ATPError):
    """The ``state`` of the Instance does not allow the requested ``event``."""

    def __init__(
        self, message: str, *, event: Event | None = None, state: State | None = None
    ) -> None:
        super().__init__(message)
        self.event = event
        self.state = state


class NotPausable(IllegalTransition):
    """An Instance of this Type can never be paused, because the Type is transactional."""


class UnknownDaemon(ATPError, LookupError):
    """No daemon has this uuid, or this host and pid: it has left, or it never existed."""


class IllegalOrder(ATPError):
    """The ``mode`` of the daemon does not allow the requested ``order``."""

    def __init__(
        self, message: str, *, order: DaemonCommand | None = None, mode: Mode | None = None
    ) -> None:
        super().__init__(message)
        self.order = order
        self.mode = mode


class WaitTimeout(ATPError, TimeoutError):
    """The Instance or graph did not end within the time-out."""


class WaitInTransaction(ATPError):
    """The caller waits inside a transaction, which would never see the end."""


class FolderRefused(ATPError):
    """A daemon cannot start: a folder that it needs belongs to somebody else."""


class LeaseLost(ATPError):
    """The daemon has lost its lease: the lease has expired, or its row no longer exists."""


class PausedInTransaction(ATPError):
    """A handler cannot pause inside a transaction, which would stay open during the pause."""


class TaskGone(ATPError):
    """The attempt no longer holds its Task: the writes of its final transaction are rolled back."""


class InvalidStep(ATPError, ValueError):
    """The name of a step is invalid, or an earlier attempt used it for another kind of step."""


class DoubledStep(InvalidStep):
    """A handler used the name of a step twice in one attempt. Steps in a loop need a ``key``."""


class UncheckedStep(InvalidStep):
    """The block of a step did not read ``is_done``, so it would run in each attempt."""


class StepInTransaction(ATPError):
    """A step began inside a transaction, whose rollback would remove the step's checkpoint."""


class UnusableResult(NotSerializable):
    """The result of a step cannot be stored. The attempt ends as FATAL: it would fail again."""


# The HTTP header Retry-After (RFC 9110, 10.2.3): seconds, or a date.

# The longest accepted delay, in seconds: an hour, whatever the downstream asks for.
LONGEST_RETRY_AFTER = 3600.0


class RequestedDelay(NamedTuple):
    """The delay that a downstream asks for, in seconds; ``told`` says how ATP changed it."""

    after: float | None
    told: str = ""


def read_retry_after(value: object, now: datetime) -> RequestedDelay:
    """Return the delay that a Retry-After asks for; ``after`` is None if it asks for no delay.

    The value is a number of seconds (also as text), an HTTP date, a datetime or a timedelta. A
    datetime without a zone is local if USE_TZ is off, else in UTC. A past time gives 0. A value
    that cannot be read gives None instead of an exception, because another system has sent it.
    """
    if value is None or value == "":
        return RequestedDelay(None)
    seconds = _read_seconds(value, now)
    if seconds is None or math.isnan(seconds):
        return RequestedDelay(None, f"Retry-After {_describe_value(value)} cannot be read")
    if seconds < 0:
        return RequestedDelay(0.0, f"Retry-After {_describe_value(value)} has passed")
    if seconds > LONGEST_RETRY_AFTER:
        return RequestedDelay(
            LONGEST_RETRY_AFTER,
            f"Retry-After {_describe_value(value)} is cut to {LONGEST_RETRY_AFTER:.0f} s",
        )
    return RequestedDelay(seconds)


def _describe_value(value: object) -> str:
    try:
        return repr(str(value)[:60])
    except ValueError:  # an integer with more digits than Python converts to text
        return "with too many digits"


def _read_seconds(value: object, now: datetime) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int):
        # A float cannot hold larger integers.
        return float(max(-LONGEST_RETRY_AFTER, min(value, 2 * LONGEST_RETRY_AFTER)))
    if isinstance(value, float):
        return value
    if isinstance(value, datetime):
        is_local = timezone.is_naive(value) and not project.USE_TZ
        time = timezone.make_aware(value) if is_local else _with_zone(value)
        return (time - now).total_seconds()
    if not isinstance(value, str):
        return None
    try:
        return float(value)
    except ValueError:
        return _read_date(value, now)


def _read_date(text: str, now: datetime) -> float | None:
    try:
        return (_with_zone(parsedate_to_datetime(text)) - now).total_seconds()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _with_zone(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)

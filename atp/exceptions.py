"""All exceptions: ATP's own errors, and the exceptions with which a handler controls its outcome.

All of ATP's own errors are ATPErrors. An error about an invalid argument is also a ValueError, and
an error about something that does not exist is also a LookupError.
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


# The exceptions that a handler raises, and the classes that describe other failures.


class Retry(Exception):
    """A handler raises Retry so that ATP runs it again later.

    Retry uses up one of the Type's ``max_retries``. ATP logs it without a traceback. ``after`` is
    the delay, in seconds or as a timedelta; without ``after`` the Type's backoff sets the delay.
    """

    def __init__(self, message: str = "", *, after: timedelta | float | None = None) -> None:
        super().__init__(message)
        self.after = None if after is None else _check_delay("Retry", after)


class Defer(Exception):
    """A handler raises Defer so that ATP runs it again later, without using up a retry.

    ``after`` is the delay, in seconds or as a timedelta. It must be more than 0, because otherwise
    an Instance that always defers would run again and again without a pause.
    """

    def __init__(self, message: str = "", *, after: timedelta | float) -> None:
        super().__init__(message)
        self.after = _check_delay("Defer", after, is_from_zero=False)


class Throttled(Defer):
    """A handler raises Throttled if its Type's downstream refuses calls. No retry is used up.

    ``after`` is the delay that the downstream asks for: the unchanged value of the HTTP header
    Retry-After (seconds or a date), a timedelta, or None. ATP waits an hour at most. It treats a
    time in the past as 0, and a value that it cannot read as None. If the Type has no downstream,
    Throttled acts as a :class:`Defer` with a delay of at least ``LEAST`` seconds.
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

    Unavailable uses up no retry. :class:`Throttled` describes ``after``. If the Type has no
    downstream, ATP treats Unavailable like any other error, which uses up a retry.
    """

    def __init__(self, message: str = "", *, after: object = None) -> None:
        asked = read_retry_after(after, datetime.now(UTC))
        super().__init__(f"{message} ({asked.told})" if asked.told else message)
        self.asked = asked.after


class Fatal(Exception):
    """A handler raises Fatal if a retry would not help. The Instance becomes FAILED at once.

    ``fingerprint`` is a word that the handler chooses. All failures of one Type with the same
    fingerprint belong to one error group, whatever their messages are and wherever they were
    raised.
    """

    def __init__(self, *args: object, fingerprint: str = "") -> None:
        super().__init__(*args)
        if not isinstance(fingerprint, str):
            raise ValueError(f"Fatal(fingerprint={fingerprint!r}): must be text")
        self.fingerprint = fingerprint


class Interrupted(BaseException):
    """ATP raises Interrupted in ``context.check()``, or anywhere in a handler, to end the attempt.

    It derives from BaseException so that ``except Exception`` in a handler does not catch it. A
    handler that catches it to clean up must raise it again.
    """


class TaskFailed(Exception):
    """Stands for a failure that no exception of the handler has caused, such as a cancel.

    ATP never raises this class or its subclasses. A result of django.tasks names one of them as the
    class of its error.
    """


class Stale(TaskFailed):
    """The Instance is FAILED because more of its attempts were lost than allowed."""


class Cancelled(TaskFailed):
    """The Instance is FAILED because a user or a program cancelled it."""


class Dropped(TaskFailed):
    """The Instance is FAILED because a gate dropped it."""


class Missed(TaskFailed):
    """The Instance is FAILED because it was not started before its ``start_before``."""


class Upstream(TaskFailed):
    """The Instance is FAILED because a node of its graph on which it depends failed."""


class Unusable(Exception):
    """An attempt's inputs or result cannot be used, so each further attempt would fail too.

    ATP raises Unusable ``from`` the error that says why. The Instance becomes FAILED for the reason
    FATAL, with the message of that error.
    """


class IncompatibleInputs(Exception):
    """The inputs are incompatible with this process's handler; another release may accept them.

    ATP defers the Instance. The message says why the inputs are incompatible.
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
    """Return the argument ``after`` in seconds. Raises ValueError if it is out of range."""
    after = after.total_seconds() if isinstance(after, timedelta) else float(after)
    if not 0 <= after <= LONGEST_DELAY or not (after or is_from_zero):
        bounds = "from 0 to" if is_from_zero else "more than 0 and at most"
        raise ValueError(f"{name}(after={after:g}): must be {bounds} {LONGEST_DELAY:.0f} s")
    return after


# Errors of ATP.


class ATPError(Exception):
    """The base class of ATP's own errors.

    If the caller passed several calls or rows, ``call`` is the number of the invalid one, from 0.
    """

    call: int


class QueueFull(ATPError):
    """Too many Instances wait in a Type or a lane, so ATP enqueued nothing.

    ``scope`` names the Type, or the Type and the collection. ``waiting`` is the number of waiting
    Instances, counted up to a little more than ``limit``. ``limit`` is the ``max_waiting`` that was
    reached, or None if only ``max_wait`` is set. ``oldest`` is how long the oldest due Instance has
    waited, as a timedelta, or None if ATP did not read it. ``retry_after`` is the time to wait
    before the next try, from 1 to 600 seconds.
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
    """Somebody else has set the gate since the caller read it.

    ``gate`` is the current Gate, or None if it is open.
    """

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
    """Somebody else has changed the schedule since the caller read it.

    ``schedule`` is the current row of the schedule.
    """

    def __init__(self, message: str, *, schedule: object = None) -> None:
        super().__init__(message)
        self.schedule = schedule


class InvalidLimit(ATPError, ValueError):
    """A limit or a weight cannot be parsed, or is out of range."""


class UnknownDownstream(ATPError, LookupError):
    """No registered Type names this downstream."""


class DownstreamChanged(ATPError):
    """A downstream is not in the state that the caller expects.

    ``downstream`` is the current row of the downstream.
    """

    def __init__(self, message: str, *, downstream: object = None) -> None:
        super().__init__(message)
        self.downstream = downstream


class InvalidSchedule(ATPError, ValueError):
    """The parameters of a schedule are invalid.

    ``parameter`` is the name of the invalid parameter ("cron", "every", "timezone"), or None.
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
    """A node has no result, or its result lacks the requested key; the message says which."""


class UnknownErrorGroup(ATPError, LookupError):
    """No error group has this name, or the given digits begin the names of several groups."""


class GraphClosed(ATPError):
    """The graph accepts no more nodes at this place.

    Either the graph has ended or is being ended, or the node that should wait for the new nodes no
    longer waits.
    """


class InvalidInputs(ATPError, ValueError, TypeError):
    """The inputs do not fit the handler's signature, or violate its contract.

    ``argument`` is the name of the first invalid argument, or None. ``problems`` has a pair for
    each problem with the contract: the path of the invalid value, and a message.
    """

    problems: Sequence[tuple[str, str]] = ()

    def __init__(self, message: str, *, argument: str | None = None) -> None:
        super().__init__(message)
        self.argument = argument


class NotSerializable(ATPError, ValueError):
    """A value cannot be serialized without loss."""


class TooLarge(ATPError, ValueError):
    """A serialized value is larger than the limit for its kind, such as MAX_INPUTS_SIZE."""


class CorruptData(ATPError, ValueError):
    """Stored data cannot be read: it is damaged, or its signature is wrong."""


class DuplicateIdentifier(ATPError, ValueError):
    """An Instance of the Type already has this identifier. ``instance`` is that Instance."""

    def __init__(self, message: str, instance: Any = None) -> None:
        super().__init__(message)
        self.instance = instance


class UniqueTaken(DuplicateIdentifier):
    """A live Instance of the Type already has this unique key. ``instance`` is that Instance."""


class InvalidPageKey(ATPError, ValueError):
    """The key of a page in a list is malformed, or belongs to another list."""


class InvalidSelection(ATPError, ValueError):
    """A filter of a list is invalid, because its name or its value is unknown.

    ``errors`` has a pair for each invalid filter: its name, and the problem.
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
    """No daemon has this uuid, or this host and pid. The daemon has left, or never existed."""


class IllegalOrder(ATPError):
    """The daemon's ``mode`` does not allow ``order``, the requested command."""

    def __init__(
        self, message: str, *, order: DaemonCommand | None = None, mode: Mode | None = None
    ) -> None:
        super().__init__(message)
        self.order = order
        self.mode = mode


class WaitTimeout(ATPError, TimeoutError):
    """The Instance or graph did not end within the time-out."""


class WaitInTransaction(ATPError):
    """The caller waits inside a transaction, which would never see the Instance or graph end."""


class FolderRefused(ATPError):
    """A daemon cannot start, because a folder that it needs belongs to another user."""


class LeaseLost(ATPError):
    """The daemon has lost its lease, because the lease expired or its row was deleted."""


class PausedInTransaction(ATPError):
    """A handler tried to pause inside a transaction, which would stay open during the pause."""


class TaskGone(ATPError):
    """The attempt no longer holds its Task, so ATP rolls back its final transaction."""


class InvalidStep(ATPError, ValueError):
    """The name of a step is invalid, or an earlier attempt used it for another kind of step."""


class DoubledStep(InvalidStep):
    """A handler used the name of a step twice in one attempt. Steps in a loop need a ``key``."""


class UncheckedStep(InvalidStep):
    """The ``with`` block of a step did not read ``is_done``, so it would run in each attempt."""


class StepInTransaction(ATPError):
    """A step began inside a transaction, whose rollback would remove the step's checkpoint."""


class UnusableResult(NotSerializable):
    """The result of a step cannot be stored. The Instance fails as FATAL, without a retry."""


# The HTTP header Retry-After (RFC 9110, 10.2.3): seconds, or a date.

# The longest accepted delay, in seconds: an hour, whatever the downstream asks for.
LONGEST_RETRY_AFTER = 3600.0


class RequestedDelay(NamedTuple):
    """The delay in seconds that a downstream asks for, or None.

    ``told`` says how ATP changed the value, or that ATP could not read it.
    """

    after: float | None
    told: str = ""


def read_retry_after(value: object, now: datetime) -> RequestedDelay:
    """Return the delay in the value of a Retry-After header, as a :class:`RequestedDelay`.

    ``value`` is a number of seconds (also as text), an HTTP date, a datetime or a timedelta. A
    datetime without a zone is in local time if USE_TZ is off, else in UTC. A time in the past gives
    0. A value that cannot be read gives None instead of an exception, because another system has
    sent it.
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

"""Every exception: those that ATP raises, those that a handler raises (Retry, Fatal, Throttled
with its Retry-After), those that stand for an end.
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
    from .commands import Mode, Order
    from .states import Event, State


# The exceptions that a handler raises to control its end, and those that stand for other ends.
#
# :mod:`atp.exceptions` lists them.

# All that a handler or an application may meet.
__all__ = [  # noqa: RUF022 (by who raises them)
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


class Retry(Exception):
    """A handler raises Retry to be tried again later.

    It spends one of the Type's ``max_retries`` and is logged without a traceback. ``after`` is the
    delay, in seconds or as a timedelta; without it the Type's backoff decides.
    """

    def __init__(self, message: str = "", *, after: timedelta | float | None = None) -> None:
        super().__init__(message)
        self.after = None if after is None else _delay("Retry", after)


class Defer(Exception):
    """A handler raises Defer to run later, without a failure. It spends no budget, however often.

    ``after`` is the delay, in seconds or as a timedelta. It must be more than 0: nothing else stops
    an Instance that is always deferred from running again and again at once.
    """

    def __init__(self, message: str = "", *, after: timedelta | float) -> None:
        super().__init__(message)
        self.after = _delay("Defer", after, is_from_zero=False)


class Throttled(Defer):
    """A handler raises Throttled if its Type's downstream refuses calls. It spends no budget.

    ``after`` is the delay that the downstream asked for: an unchanged Retry-After of HTTP, in
    seconds or as a date; a timedelta; or None. A past time is 0, more than an hour counts as an
    hour, and a value that cannot be read counts as None. If the Type has no downstream it is a
    :class:`Defer` of at least ``LEAST`` seconds.
    """

    # The shortest delay in seconds: with no delay the attempts would follow each other at once.
    LEAST = 1.0

    def __init__(self, message: str = "", *, after: object = None) -> None:
        asked = read(after, datetime.now(UTC))
        told = f"{message} ({asked.told})" if message and asked.told else message or asked.told
        super().__init__(told, after=max(self.LEAST, asked.after or 0.0))
        self.asked = asked.after


class Unavailable(Exception):
    """A handler raises Unavailable if its Type's downstream fails or cannot be reached.

    It spends no budget. ``after`` is as in :class:`Throttled`. If the Type has no downstream, it is
    an error like any other, and spends a retry.
    """

    def __init__(self, message: str = "", *, after: object = None) -> None:
        asked = read(after, datetime.now(UTC))
        super().__init__(f"{message} ({asked.told})" if asked.told else message)
        self.asked = asked.after


class Fatal(Exception):
    """A handler raises Fatal if another attempt is no use: the Instance is FAILED at once.

    All failures of one Type with the same ``fingerprint``, a word that the handler chooses, are one
    error group, whatever their messages and wherever they were raised.
    """

    def __init__(self, *args: object, fingerprint: str = "") -> None:
        super().__init__(*args)
        if not isinstance(fingerprint, str):
            raise ValueError(f"Fatal(fingerprint={fingerprint!r}): must be text")
        self.fingerprint = fingerprint


class Interrupted(BaseException):
    """ATP raises Interrupted in ``context.check()``, or anywhere in a handler, to end the attempt.

    It derives from BaseException so that a handler's ``except Exception``
    does not swallow it. A handler may clean up, and must let it pass; ATP handles it.
    """


class TaskFailed(Exception):
    """An Instance is FAILED for a reason other than an exception of its handler.

    Nothing raises this class or its subclasses: results of django.tasks name them as errors.
    """


class Stale(TaskFailed):
    """The Instance lost more attempts than allowed."""


class Cancelled(TaskFailed):
    """Somebody has cancelled the Instance."""


class Dropped(TaskFailed):
    """A gate dropped the Instance."""


class Missed(TaskFailed):
    """The Instance was not started before its ``start_before``."""


class Upstream(TaskFailed):
    """A node of its graph that the Instance depends on failed."""


class Unusable(Exception):
    """Raised ``from`` an error about unusable values: each further attempt would fail too.

    The Instance is FAILED for the reason FATAL, with the message of that error.
    """


class Misfit(Exception):
    """The inputs do not fit the handler of this process; that of another release may accept them.

    The Instance is deferred. The message says why the inputs do not fit.
    """


def path_of(error: BaseException) -> str:
    """Return the dotted path of an exception's class, even if the class overrides its names."""
    kind = type(error)
    names = []
    for slot in ("__module__", "__qualname__"):
        try:
            found = type.__dict__[slot].__get__(kind)
        except AttributeError:
            found = None
        names.append(str.__str__(found) if isinstance(found, str) else "?")
    module, name = names
    return f"{module}.{name}".replace("\x00", "?").encode("utf-8", "replace").decode()


def _delay(name: str, after: timedelta | float, *, is_from_zero: bool = True) -> float:
    """Return a delay in seconds. Raises ValueError."""
    after = after.total_seconds() if isinstance(after, timedelta) else float(after)
    if not 0 <= after <= LONGEST_DELAY or not (after or is_from_zero):
        bounds = "from 0 to" if is_from_zero else "more than 0 and at most"
        raise ValueError(f"{name}(after={after:g}): must be {bounds} {LONGEST_DELAY:.0f} s")
    return after


# The errors that an enqueue raises.


class ATPError(Exception):
    """The base class of all errors of ATP.

    ``call`` is the number of the call or row that the error is about, if there are several.
    """

    call: int


class QueueFull(ATPError):
    """Too many Instances wait in a Type or a lane, so nothing was enqueued.

    ``scope`` is the Type, or the Type and the collection, in words. ``waiting`` is the number that
    wait, counted up to a little more than ``limit``. ``limit`` is the ``max_waiting`` that was
    reached; None if only ``max_wait`` is set. ``oldest`` is how long the oldest due one has waited,
    None if that was not read. ``retry_after`` is in seconds, from 1 to 600.
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


# Tracebacks show the module that they are imported from.
for _name in __all__:
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = "atp.exceptions"


# The exceptions that ATP raises, and those that a handler raises to control its end.
#
# ATP raises ATPErrors. Those about bad arguments are also ValueErrors, those about something
# missing LookupErrors.


class NotMigrated(ATPError):
    """The queue's database lacks tables or columns; the message names the command that helps."""


class UnknownType(ATPError, LookupError):
    """No Type of this identifier is declared or registered."""


class UnregisteredHandler(UnknownType):
    """The Type is known to the database, but this process has no handler for it."""


class TypeInUse(ATPError):
    """A Type cannot be unregistered while Instances of it exist (RFC 14)."""


class InvalidType(ATPError, ValueError):
    """A Type is declared with invalid parameters."""


class InvalidOption(ATPError, ValueError):
    """An option of an enqueue is unknown or out of range."""


class InvalidGate(ATPError, ValueError):
    """A gate cannot be set like this: its scope or its opening time is invalid."""


class GateChanged(ATPError):
    """Somebody else has set the gate meanwhile. ``gate`` is the current Gate, None if open."""

    def __init__(self, message: str, *, gate: Any = None) -> None:
        super().__init__(message)
        self.gate = gate


class IllegalSchedule(ATPError):
    """A schedule does not allow the verb: for example, one that code declares cannot be deleted."""


class UnknownSchedule(ATPError, LookupError):
    """There is no schedule with this identifier."""


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
    """A schedule is declared with invalid parameters.

    ``parameter`` is the name of the invalid one ("cron", "every", "timezone"), or None.
    """

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class InvalidGraph(ATPError, ValueError):
    """A graph is invalid: a cycle, an unknown or duplicate name, a result of a node not upstream.

    ``parameter`` is the name of the invalid parameter ("after", "name", "on_failure"), or None.
    """

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class UnknownGraph(ATPError, LookupError):
    """There is no graph with this uuid."""


class NoResult(ATPError, LookupError):
    """The result of a node does not exist, or has no such key; the message says which."""


class UnknownErrorGroup(ATPError, LookupError):
    """No error group has this name, or several names of error groups begin with it."""


class GraphClosed(ATPError):
    """No node can be added to the graph any more, or none before the given node."""


class InvalidInputs(ATPError, ValueError, TypeError):
    """The inputs do not fit: ``argument`` names one, ``problems`` are all, as (path, message)."""

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
    """An Instance with this identifier already exists for the Type.

    ``instance`` is the existing one.
    """

    def __init__(self, message: str, instance: Any = None) -> None:
        super().__init__(message)
        self.instance = instance


class UniqueTaken(DuplicateIdentifier):
    """A live Instance of the Type has this unique key. ``instance`` is that Instance, unchanged."""


class InvalidPageKey(ATPError, ValueError):
    """A page key is malformed, or belongs to another list."""


class InvalidSelection(ATPError, ValueError):
    """A filter of a list is invalid: its name or its value is unknown.

    ``errors`` are pairs: the name of the filter, and the problem with it.
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
    """No daemon has this uuid, or this host and pid: it has left, or has never existed."""


class IllegalOrder(ATPError):
    """The ``mode`` of the daemon does not allow the requested ``order``."""

    def __init__(
        self, message: str, *, order: Order | None = None, mode: Mode | None = None
    ) -> None:
        super().__init__(message)
        self.order = order
        self.mode = mode


class WaitTimeout(ATPError, TimeoutError):
    """The Instance did not reach a terminal state in the given time."""


class WaitInTransaction(ATPError):
    """The caller waits inside a transaction, which would never see the Instance finish."""


class FolderRefused(ATPError):
    """A daemon cannot start: a folder that it needs belongs to somebody else."""


class LeaseLost(ATPError):
    """The daemon has lost its lease: the row of the lease is gone, or has expired."""


class PausedInTransaction(ATPError):
    """A handler cannot pause inside a transaction, which would stay open during the pause."""


class TaskGone(ATPError):
    """The Task was taken from its holder: the writes of its final transaction are rolled back."""


class InvalidStep(ATPError, ValueError):
    """The name of a step is invalid, or an earlier attempt used it for another kind of step."""


class DoubledStep(InvalidStep):
    """A handler used the name of a step twice in one attempt. Steps in a loop need a ``key``."""


class UncheckedStep(InvalidStep):
    """The block of a step did not read ``is_done``, and so would run in each attempt."""


class StepInTransaction(ATPError):
    """A step was begun inside a transaction, whose rollback would remove the step's checkpoint."""


class UnusableResult(NotSerializable):
    """The result of a step cannot be stored. The attempt ends as FATAL: it would fail again."""


# The HTTP header Retry-After (RFC 9110, 10.2.3): seconds, or a date.

# The longest delay that is accepted, in seconds: an hour, whatever the downstream asks for.
LONGEST = 3600.0


class Asked(NamedTuple):
    """The delay that a downstream asks for, in seconds; ``told`` says how ATP has corrected it."""

    after: float | None
    told: str = ""


def read(value: object, now: datetime) -> Asked:
    """Return the delay that a value of Retry-After asks for; ``after`` is None if it asks for none.

    The value is a number of seconds (also as text), an HTTP date, a datetime or a timedelta. A
    datetime without a zone is local if USE_TZ is off, else in UTC. A past time gives 0. A value
    that cannot be read gives None and raises nothing, because it comes from another system.
    """
    if value is None or value == "":
        return Asked(None)
    seconds = _seconds(value, now)
    if seconds is None or math.isnan(seconds):
        return Asked(None, f"Retry-After {_shown(value)} cannot be read")
    if seconds < 0:
        return Asked(0.0, f"Retry-After {_shown(value)} has passed")
    if seconds > LONGEST:
        return Asked(LONGEST, f"Retry-After {_shown(value)} is cut to {LONGEST:.0f} s")
    return Asked(seconds)


def _shown(value: object) -> str:
    try:
        return repr(str(value)[:60])
    except ValueError:  # an integer with more digits than Python writes
        return "with too many digits"


def _seconds(value: object, now: datetime) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int):
        # A float has no room for larger integers.
        return float(max(-LONGEST, min(value, 2 * LONGEST)))
    if isinstance(value, float):
        return value
    if isinstance(value, datetime):
        is_local = timezone.is_naive(value) and not project.USE_TZ
        time = timezone.make_aware(value) if is_local else _aware(value)
        return (time - now).total_seconds()
    if not isinstance(value, str):
        return None
    try:
        return float(value)
    except ValueError:
        return _until(value, now)


def _until(text: str, now: datetime) -> float | None:
    try:
        return (_aware(parsedate_to_datetime(text)) - now).total_seconds()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _aware(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)

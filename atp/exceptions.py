"""Everything that ATP raises, and what a handler raises to speak to ATP: ATPErrors.

Those about bad arguments are also ValueErrors, those about something missing LookupErrors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .words.raised import *  # noqa: F403
from .words.raised import ATPError as ATPError  # noqa: PLC0414 (others derive from it)

if TYPE_CHECKING:
    from .models import Gate, Instance
    from .states import Event, State
    from .words.orders import Mode, Order


class UnknownType(ATPError, LookupError):
    """No Type of this identifier is declared or registered."""


class UnregisteredHandler(UnknownType):
    """The Type is known to the database, but this process has no handler for it."""


class TypeInUse(ATPError):
    """A Type cannot be unregistered while Instances of it exist (RFC 14)."""


class InvalidType(ATPError, ValueError):
    """A Type is declared with parameters that make no sense."""


class InvalidOption(ATPError, ValueError):
    """An option of an enqueue is unknown or out of range."""


class InvalidGate(ATPError, ValueError):
    """A gate cannot be set so: its place, or the time at which it is to open, makes no sense."""


class GateChanged(ATPError):
    """Somebody else has set a gate meanwhile: ``gate`` is how it is, None if it is open."""

    def __init__(self, message: str, *, gate: Gate | None = None) -> None:
        super().__init__(message)
        self.gate = gate


class IllegalSchedule(ATPError):
    """A schedule does not allow the verb: as to delete one that code declares."""


class UnknownSchedule(ATPError, LookupError):
    """There is no schedule with this identifier."""


class ScheduleChanged(ATPError):
    """Somebody else has changed a schedule meanwhile: ``schedule`` is the row as it is."""

    def __init__(self, message: str, *, schedule: object = None) -> None:
        super().__init__(message)
        self.schedule = schedule


class InvalidLimit(ATPError, ValueError):
    """A limit or a weight is written wrongly, or out of range."""


class UnknownDownstream(ATPError, LookupError):
    """No Type that is registered names this downstream."""


class DownstreamChanged(ATPError):
    """A downstream is not as expected: ``downstream`` is how it is."""

    def __init__(self, message: str, *, downstream: object = None) -> None:
        super().__init__(message)
        self.downstream = downstream


class InvalidSchedule(ATPError, ValueError):
    """A schedule is declared with parameters that make no sense.

    ``parameter`` is the name of the wrong one, where it is one: "cron", "every", "timezone".
    """

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class InvalidGraph(ATPError, ValueError):
    """A graph cannot be: a cycle, an unknown or doubled name, a result that is not upstream.

    ``parameter`` is what is wrong, where it is one: "after", "name", "on_failure".
    """

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class UnknownGraph(ATPError, LookupError):
    """There is no graph with this uuid."""


class UnknownErrorGroup(ATPError, LookupError):
    """No error group, or more than one, is called so."""


class GraphClosed(ATPError):
    """Nothing can be added to the graph any more, or not before that node."""


class InvalidInputs(ATPError, ValueError, TypeError):
    """The inputs do not fit: ``argument`` is one that does not, ``problems`` all, by path."""

    problems: Sequence[tuple[str, str]] = ()

    def __init__(self, message: str, *, argument: str | None = None) -> None:
        super().__init__(message)
        self.argument = argument


class NotSerializable(ATPError, ValueError):
    """A value cannot be serialized without losing something."""


class TooLarge(ATPError, ValueError):
    """A serialized value exceeds the limit of its kind."""


class CorruptData(ATPError, ValueError):
    """Stored data cannot be read back: damaged, or its signature is wrong."""


class DuplicateIdentifier(ATPError, ValueError):
    """An Instance with this identifier already exists for the Type.

    ``instance`` is the existing one.
    """

    def __init__(self, message: str, instance: Instance | None = None) -> None:
        super().__init__(message)
        self.instance = instance


class UniqueTaken(DuplicateIdentifier):
    """A live Instance of the Type, ``instance``, has this unique key, and is left as it is."""


class InvalidPageKey(ATPError, ValueError):
    """A page key is of another list, or none at all."""


class InvalidSelection(ATPError, ValueError):
    """A list cannot be filtered so: the name or the value of a filter is unknown.

    ``errors`` are pairs of the filter and what is wrong with it.
    """

    def __init__(self, message: str, *, errors: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.errors = errors


class UnknownInstance(ATPError, LookupError):
    """No Instance with this uuid or identifier exists."""


class IllegalTransition(ATPError):
    """The ``state`` of the Instance does not allow the ``event`` that was asked for."""

    def __init__(
        self, message: str, *, event: Event | None = None, state: State | None = None
    ) -> None:
        super().__init__(message)
        self.event = event
        self.state = state


class NotPausable(IllegalTransition):
    """An Instance of this Type cannot be paused, whatever its state: it is transactional."""


class UnknownDaemon(ATPError, LookupError):
    """No daemon of this uuid, or of this host and pid, is there: it has left, or never was."""


class IllegalOrder(ATPError):
    """The ``mode`` of the daemon does not allow the ``order`` that was asked for."""

    def __init__(
        self, message: str, *, order: Order | None = None, mode: Mode | None = None
    ) -> None:
        super().__init__(message)
        self.order = order
        self.mode = mode


class WaitTimeout(ATPError, TimeoutError):
    """The Instance did not reach a terminal state in the given time."""


class WaitInTransaction(ATPError):
    """Waiting inside a transaction would never see the Instance finish."""


class FolderRefused(ATPError):
    """A daemon cannot start: a folder that it needs belongs to somebody else."""


class LeaseLost(ATPError):
    """The daemon no longer has a lease: its row is gone or has run out."""


class PausedInTransaction(ATPError):
    """A handler cannot pause inside a transaction: it would be open all the while."""


class TaskGone(ATPError):
    """The Task was taken away: what its attempt wrote in its end's transaction is not kept."""


class InvalidStep(ATPError, ValueError):
    """A step of a handler has a name that makes no sense, or that was of another kind."""


class DoubledStep(InvalidStep):
    """A handler has used the name of a step twice in one attempt: loops give a ``key``."""


class UncheckedStep(InvalidStep):
    """The block of a step did not look whether it ``is_done``: it would run in each attempt."""


class StepInTransaction(ATPError):
    """A step inside a transaction: its checkpoint would be rolled back with that."""


class UnusableResult(NotSerializable):
    """The result of a step cannot be kept. To call its function again is no use: it is FATAL."""

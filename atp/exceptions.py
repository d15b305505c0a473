"""The exceptions that ATP raises, and those that a handler raises to control its end.

ATP raises ATPErrors. Those about bad arguments are also ValueErrors, those about something
missing LookupErrors.
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

    def __init__(self, message: str, *, gate: Gate | None = None) -> None:
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

    def __init__(self, message: str, instance: Instance | None = None) -> None:
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

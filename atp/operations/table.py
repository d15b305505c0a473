"""The table of operations that operators and programs can use.

Shell, API, pages, admin and docs are derived from this table, so a new operation needs only one new
entry.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any

from .. import commands, text
from ..commands import EXPLANATIONS, DaemonCommand
from ..deadletters import operations as matching
from ..downstreams import operations as downstreams
from ..exceptions import IllegalTransition
from ..graphs import operations as graphs
from ..models import Daemon, Instance, Task
from ..placement import EXECUTOR
from ..schedules import operations as schedules
from ..states import CLAIMED, LIVE, TERMINAL, Actor, Event, State, allowed_events
from ..store import get_store
from ..tailers import operations as tailers
from . import gates, instances
from .daemons import command, end_session
from .gates import DROP_HINT, HEAVIEST, HOLD_HINT, LIGHTEST, MOST, SHORTEST_WAIT
from .instances import change
from .operation import (
    CONTROL,
    DELETE,
    OPERATE,
    PRIORITY,
    Delay,
    GateState,
    Moment,
    Number,
    Operation,
    Parameter,
    Rate,
    Text,
    WholeNumber,
    always,
)
from .registry import DELETE_TYPE, get_type, registry, types_without_retention

# The kinds of targets, which are the keys of the table
INSTANCE, TARGET, DAEMON, SCHEDULE, GRAPH = "instance", "scope", "daemon", "schedule", "graph"
DOWNSTREAM, TAILER, MATCHING, ERROR = "downstream", "tailer", "matching", "error"
# The two things that an operation on a Type, a lane or everything can set.
GATE, LIMIT = "gate", "limit"


# Operations on daemons, one for each command


@dataclass(frozen=True, kw_only=True)
class DaemonOperation(Operation):
    """An operation that sends a command to a daemon. The daemon obeys within a second or two."""

    order: DaemonCommand
    permission: str = CONTROL

    def is_allowed(self, daemon: Daemon) -> bool:
        """Return True if the command would change the daemon's mode."""
        return self.order in commands.allowed_commands(daemon.aim)


def _daemon_operation(order: DaemonCommand) -> DaemonOperation:
    return DaemonOperation(
        name=order.value,
        label=order.label.capitalize(),
        explanation=EXPLANATIONS[order],
        order=order,
        call=lambda daemon, by: command(daemon, order, by=by),
        told=lambda *_: f"It has been told to {order.label}.",
        asks_first=lambda _: order is DaemonCommand.STOP,
    )


DAEMON_OPERATIONS = tuple(map(_daemon_operation, DaemonCommand))


# Operations on Instances


@dataclass(frozen=True, kw_only=True)
class InstanceOperation(Operation):
    """An operation on an Instance.

    The operation is allowed if the Instance is in one of ``states``. If ``states`` is empty, the
    table of transitions decides whether ``actor`` may cause ``event`` in the current state.
    ``is_useful(instance, task)`` returns True if the operation would change anything; ``task`` can
    be None.
    """

    event: Event | None = None
    actor: Actor = Actor.ANYONE
    states: frozenset[State] = frozenset()
    is_useful: Callable[[Instance, Task | None], bool] = always

    def is_allowed(self, instance: Instance) -> bool:
        """Return True if the state of the Instance allows the operation."""
        if self.event is Event.PAUSE and registry.is_transactional(instance.type.identifier):
            return False
        if self.states:
            return State(instance.state) in self.states
        return self.event in allowed_events(State(instance.state), self.actor)

    @property
    def asks_holder(self) -> bool:
        """True if only the daemon that holds the Instance can carry the operation out."""
        return self.actor is Actor.HOLDER


@dataclass(frozen=True, kw_only=True)
class DeleteOperation(InstanceOperation):
    """The operation that deletes an Instance.

    For a live Instance, the user also needs the permission to cancel.
    """

    def permissions(self, target: Instance) -> tuple[str, ...]:
        return (self.permission,) if target.is_terminal else (self.permission, OPERATE)


@dataclass(frozen=True, kw_only=True)
class RedriveOperation(InstanceOperation):
    """The operation that redrives an Instance.

    For an Instance of ``atp.delete``, a bulk deletion, the user also needs the permission to
    delete.
    """

    def permissions(self, target: Instance) -> tuple[str, ...]:
        if target.type.identifier == DELETE_TYPE:
            return (self.permission, DELETE)
        return (self.permission,)


def _release(instance: Instance, by: str) -> None:
    """Command the daemon that holds an Instance to release it.

    Raises IllegalTransition if no daemon holds the Instance.
    """
    if not instances.release(instance, by=by):
        raise IllegalTransition(
            f"{instance.uuid} cannot be released: it is {text.describe_state(instance)}, "
            "and no daemon holds it.",
            event=Event.RELEASE,
            state=State(instance.state),
        )


def _run_now(instance: Instance, by: str) -> None:
    """Make a waiting Instance due now.

    Raises IllegalTransition if the Instance is due already, or is not waiting.
    """
    task = instances.task(instance)
    is_waiting = task is not None and task.daemon_id is None and not task.is_blocked
    if is_waiting and not _is_due_later(instance, task):
        raise IllegalTransition(
            f"{instance.uuid} cannot be made due: it is {text.describe_state(instance)}, "
            "and due already.",
            state=State(instance.state),
        )
    change(instance, due=timedelta(), by=by)


def _is_due_later(instance: Instance, task: Task | None) -> bool:
    # A node that waits for other nodes has no due time that anybody has chosen.
    is_waiting = task is not None and task.daemon_id is None and not task.is_blocked
    return is_waiting and task is not None and task.due_at > get_store().now()


def _is_waiting(instance: Instance, task: Task | None) -> bool:
    return task is not None and task.daemon_id is None


def _change(instance: Instance, by: str, **values: Any) -> bool:
    """Change the given values of a waiting Instance; return False if no values are given."""
    if values:
        change(instance, **values, by=by)
    return bool(values)


def _delete(instance: Instance, by: str) -> bool:
    """Delete an Instance after cancelling it if it is live; return True if its row was deleted."""
    # This does not cancel an ended Instance, even if somebody redrives it meanwhile.
    return bool(instances.delete(instance, by=by, cancel=not instance.is_terminal))


def _describe_pause(instance: Instance, _: object) -> str:
    if registry.is_stoppable(instance.type.identifier):
        return "It will be paused at once, wherever its handler is."
    return "It will be paused when its handler next calls context.check() or progress()."


def _describe_resume(instance: Instance, _: object) -> str:
    if instance.state == State.RUNNING:
        return "It keeps running, because the command to pause it was withdrawn."
    return "It will continue as soon as a worker is free."


def _describe_deletion(instance: Instance, is_deleted: bool) -> str:
    if is_deleted:
        return f"{instance.uuid} is removed."
    if instance.is_terminal:
        return (
            "It was not removed, because somebody has locked it or its files cannot be removed. "
            "Delete it again."
        )
    return "It is cancelled. Delete it again when its daemon has ended it."


INSTANCE_OPERATIONS = (
    RedriveOperation(
        name="redrive",
        label="Redrive",
        explanation="Send the Instance back to the queue; its retries and restarts count anew.",
        told=lambda *_: "It is back in the queue.",
        event=Event.REDRIVE,
        call=instances.redrive,
    ),
    InstanceOperation(
        name="release",
        label="Release",
        explanation="Ask the daemon that holds the Instance to stop the attempt and to hand the "
        "Instance back. It is run again.",
        told=lambda *_: "The daemon that holds it will hand it back. Then it is run again.",
        event=Event.RELEASE,
        actor=Actor.HOLDER,
        call=_release,
    ),
    InstanceOperation(
        name="pause",
        label="Pause",
        explanation="Pause the Instance when its handler next calls context.check() or progress(), "
        "or at once if its Type is stoppable. Another task can run in its place meanwhile.",
        told=_describe_pause,
        event=Event.PAUSE,
        actor=Actor.HOLDER,
        call=instances.pause,
    ),
    InstanceOperation(
        name="resume",
        label="Resume",
        explanation="Let the paused Instance go on, as soon as a worker's place is free.",
        told=_describe_resume,
        event=Event.RESUME,
        actor=Actor.HOLDER,
        call=instances.resume,
    ),
    InstanceOperation(
        name="stack",
        label="Show the stack",
        phrase="Show the stack of {}",
        explanation="Show where the handler is now: the stacks of its threads, its memory and "
        "processor time, and what its database session waits for. The log keeps it.",
        told=lambda *_: "The daemon that holds it will write its stack to the log.",
        states=frozenset({State.RUNNING, State.PAUSED}),
        actor=Actor.HOLDER,
        call=instances.take_stack,
    ),
    InstanceOperation(
        name="run-now",
        label="Run now",
        phrase="Run {} now",
        explanation="Make the waiting Instance due at once.",
        told=lambda *_: "It is due now.",
        states=frozenset({State.ACCEPTED}),
        is_useful=_is_due_later,
        call=_run_now,
    ),
    InstanceOperation(
        name="change",
        label="Change",
        explanation="Change the priority, due time or collection of a waiting Instance.",
        told=lambda _, is_changed: "It is changed." if is_changed else "Nothing was changed.",
        parameters=(
            Parameter(name="priority", kind=PRIORITY, help="Higher first."),
            Parameter(
                name="due",
                field="due_at",
                label="Not before",
                kind=Moment(),
                help="Start the Instance no earlier than this time.",
            ),
            Parameter(
                name="postpone",
                kind=Delay(),
                help="How much later than the present due time, or than now if that has passed.",
            ),
            Parameter(
                name="collection",
                kind=Text(),
                help="Label of a subset of the Type's Instances; empty means none.",
            ),
        ),
        current=lambda instance: {
            "priority": instance.priority,
            "collection": instance.collection,
        },
        states=frozenset({State.ACCEPTED}),
        is_useful=_is_waiting,
        call=_change,
        method="PATCH",
    ),
    InstanceOperation(
        name="cancel",
        label="Cancel",
        explanation="End the Instance for good, as FAILED. A running attempt is interrupted, and "
        "killed if it does not stop.",
        told=lambda *_: "It is cancelled. If a daemon holds it, that daemon ends it.",
        event=Event.FAIL,
        call=instances.cancel,
        # A waiting Instance ends at once; the holder of a claimed one gets the command.
        states=LIVE,
        asks_first=lambda instance: instance.state in CLAIMED,
    ),
    DeleteOperation(
        name="delete",
        label="Delete",
        explanation="Remove the Instance for good, with its inputs, response, published files and "
        "log. A live Instance is cancelled first. If a daemon holds it, it is only cancelled: "
        "delete it again when it has ended.",
        told=_describe_deletion,
        states=LIVE | TERMINAL,
        is_final=True,
        call=_delete,
        permission=DELETE,
        method="DELETE",
    ),
)


# Operations on a Type, on a lane or on everything: gates, limits, purge


class Level(StrEnum):
    EVERYTHING = "everything"
    TYPE = "type"
    LANE = "lane"


# The target: the identifier of a Type and a collection, each of which can be None.
TargetPair = tuple[str | None, str | None]


@dataclass(frozen=True, kw_only=True)
class TargetOperation(Operation):
    """An operation on a Type, on a lane or on everything, as a :data:`TargetPair` says.

    ``levels`` has a Level for each of these kinds of target that the operation accepts. ``of`` is
    "gate" or "limit" if the operation sets one, otherwise "".
    """

    levels: frozenset[Level] = frozenset(Level)
    of: str = ""
    permission: str = CONTROL


def level_of(target: TargetPair) -> Level:
    """Return the Level of a target: everything, a Type or a lane."""
    type, collection = target
    if type is None:
        return Level.EVERYTHING
    return Level.TYPE if collection is None else Level.LANE


def _purge(target: TargetPair, by: str) -> int:
    type, _ = target
    if type is not None:
        get_type(type)
    return instances.purge(type, by=by)


def _describe_purge(target: TargetPair, count: int) -> str:
    kept = types_without_retention(target[0])
    more = f" Types without retention: {', '.join(kept)}." if kept else ""
    return f"Instances removed: {count}.{more}"


def _describe_gate(mode: str, target: TargetPair, gate: Any) -> str:
    was = gate if mode == "open" else gate.was
    return text.describe_gate_change(mode, *target, was, gates.gates())


_REASON = Parameter(name="reason", kind=Text(), help="Why, for the log and the pages.")
_UNTIL = Parameter(name="until", kind=Moment(), help="When the gate opens by itself.")
_EXPECTED = Parameter(
    name="expected",
    kind=GateState(),
    help="Change nothing unless the gate's state, or its `since`, is this.",
    in_forms=False,
)
_COUNT: dict[str, Any] = {"least": 1, "most": MOST}

TARGET_OPERATIONS = (
    TargetOperation(
        name="hold",
        label="Hold",
        explanation="Hold waiting Instances: none starts until the gate opens.",
        call=lambda target, **given: gates.hold(*target, **given),
        told=partial(_describe_gate, "hold"),
        parameters=(_REASON, _UNTIL, _EXPECTED),
        of=GATE,
    ),
    TargetOperation(
        name="drop",
        label="Drop",
        explanation="Let all waiting Instances, and all that are enqueued from now on, FAIL as "
        "DROPPED.",
        call=lambda target, **given: gates.drop(*target, **given),
        told=partial(_describe_gate, "drop"),
        parameters=(_REASON, _UNTIL, _EXPECTED),
        asks_first=lambda _: True,
        of=GATE,
    ),
    TargetOperation(
        name="open",
        label="Open",
        explanation="Open the gate: waiting Instances are started again.",
        call=lambda target, **given: gates.open_gate(*target, **given),
        told=partial(_describe_gate, "open"),
        parameters=(_REASON, _EXPECTED),
        of=GATE,
    ),
    TargetOperation(
        name="limit",
        label="Limit",
        explanation="Limit a Type or a lane over all daemons. Limits that are not given stay.",
        call=lambda target, **given: gates.limit(*target, **given),
        told=lambda _, limit: f"The limits are set: {text.describe_limits(limit)}.",
        parameters=(
            Parameter(
                name="max_running",
                label="At a time",
                kind=WholeNumber(**_COUNT, zero=HOLD_HINT),
                help="The most Instances claimed at any time, over all daemons.",
                can_be_none=True,
            ),
            Parameter(
                name="max_running_per_collection",
                label="At a time of each collection",
                kind=WholeNumber(**_COUNT, zero=HOLD_HINT),
                help="The same for each lane of the Type, unless the lane has its own limit.",
                can_be_none=True,
            ),
            Parameter(
                name="rate", kind=Rate(), help="Instances started per period.", can_be_none=True
            ),
            Parameter(
                name="burst",
                kind=WholeNumber(**_COUNT),
                help="The most Instances that the rate lets start at once after a pause.",
                can_be_none=True,
            ),
            Parameter(
                name="weight",
                kind=Number(LIGHTEST, HEAVIEST),
                help="Share of the Type relative to other Types; 1 by default.",
                can_be_none=True,
            ),
            Parameter(
                name="max_waiting",
                label="Waiting",
                kind=WholeNumber(**_COUNT, zero=DROP_HINT),
                help=(
                    "The most Instances that may wait; a further enqueue is refused. With max_wait "
                    "it is refused only if both are exceeded."
                ),
                can_be_none=True,
            ),
            Parameter(
                name="max_wait",
                label="Waited",
                kind=Delay(SHORTEST_WAIT),
                help="An enqueue is refused only if the oldest due Instance has waited longer.",
                can_be_none=True,
            ),
        ),
        levels=frozenset({Level.TYPE, Level.LANE}),
        of=LIMIT,
    ),
    TargetOperation(
        name="unlimit",
        label="Leave to the code",
        explanation="Use the limits that the code declares for a Type or a lane.",
        call=lambda target, by: gates.unlimit(*target, by=by),
        told=lambda _, outcome: gates.describe_unlimit(outcome),
        levels=frozenset({Level.TYPE, Level.LANE}),
        of=LIMIT,
    ),
    TargetOperation(
        name="purge",
        label="Purge",
        explanation="Remove Instances that ended longer ago than the retention of their Type.",
        call=_purge,
        told=_describe_purge,
        is_final=True,
        levels=frozenset({Level.EVERYTHING, Level.TYPE}),
        permission=DELETE,
    ),
    TargetOperation(
        name="end-session",
        label="End the session",
        explanation="End a session of the database that keeps others waiting. Its transaction is "
        "rolled back.",
        call=lambda _, pid, by: end_session(pid, by=by),
        told=lambda _, ended: f"The session with process {ended.pid} is ended.",
        parameters=(
            Parameter(
                name="pid",
                label="Process",
                kind=WholeNumber(1, 2**31 - 1),
                help="The process of the session on the database server.",
                is_required=True,
            ),
        ),
        levels=frozenset({Level.EVERYTHING}),
        is_final=True,
    ),
)


# The table


def _by_name(operations: Iterable[Any]) -> dict[str, Any]:
    return {operation.name: operation for operation in operations}


# The operations by name, by the kind of their target.
OPERATIONS = {
    INSTANCE: _by_name(INSTANCE_OPERATIONS),
    TARGET: _by_name(TARGET_OPERATIONS),
    DAEMON: _by_name(DAEMON_OPERATIONS),
    SCHEDULE: _by_name(schedules.OPERATIONS),
    GRAPH: _by_name(graphs.OPERATIONS),
    DOWNSTREAM: _by_name(downstreams.OPERATIONS),
    TAILER: _by_name(tailers.VERBS),
    MATCHING: _by_name(matching.MATCHING_OPERATIONS),
    ERROR: _by_name(matching.ERROR_OPERATIONS),
}


def allowed_operations(instance: Instance, task: Task | None = None) -> list[InstanceOperation]:
    """Return the operations that a user can apply to an Instance now.

    If the Task is given, this leaves out the operation that the daemon which holds the Instance has
    already been commanded to carry out. If that daemon is lost, this also leaves out the operations
    that only the daemon can carry out. While the Instance is being cancelled, only its deletion is
    left.
    """
    request, has_stack = commands.split_request("" if task is None else task.request)
    given = {request, commands.STACK} if has_stack else {request}
    found = [
        each
        for each in OPERATIONS[INSTANCE].values()
        if each.name not in given and (each.is_allowed(instance) or _withdraws(each, request))
    ]
    if request == "cancel":
        found = [each for each in found if each.method == "DELETE"]
    is_away = task is not None and task.daemon is not None and EXECUTOR in task.daemon.labels
    if is_away or registry.runs_in_loops(instance.type.identifier):
        # No daemon can do this with an attempt that an engine or a loop runs.
        found = [each for each in found if each.name not in (commands.PAUSE, commands.STACK)]
    if any(each.asks_holder for each in found) and _is_lost(task):
        found = [each for each in found if not each.asks_holder]
    return [each for each in found if each.is_useful(instance, task)]


def _is_lost(task: Task | None) -> bool:
    """Return True if the lease of the daemon that holds the Task has expired."""
    if task is None or task.daemon is None:
        return False
    store = get_store()
    return store.daemons.is_over(task.daemon, store.now())


def _withdraws(operation: InstanceOperation, request: str) -> bool:
    """Return True if the operation is a resume and the pending command is a pause.

    The resume then withdraws the pause.
    """
    return operation.event is Event.RESUME and request == "pause"

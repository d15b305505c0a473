"""The table of operations: API, pages, admin, shell and docs derive from it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any

from .. import commands, text
from ..commands import EXPLANATIONS, Order
from ..deadletters import operations as matching
from ..downstreams import operations as downstreams
from ..exceptions import IllegalTransition
from ..graphs import operations as graphs
from ..models import Daemon, Instance, Task
from ..schedules import operations as schedules
from ..states import CLAIMED, LIVE, TERMINAL, Actor, Event, State, allowed_events
from ..store import get_store
from ..tailers import operations as tailers
from . import gates, instances
from .daemons import command
from .gates import GATE as NOTHING_IN
from .gates import HEAVIEST, HOLD, LIGHTEST, MOST, SHORTEST_WAIT
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
    Parameter,
    Rate,
    Text,
    Verb,
    WholeNumber,
    always,
)
from .registry import DELETES, get_type, registry, types_without_retention

# The verbs on daemons: an entry for each order.


@dataclass(frozen=True, kw_only=True)
class DaemonVerb(Verb):
    """A verb that sends an order to a daemon, which carries it out within a second or two."""

    order: Order
    permission: str = CONTROL

    def is_allowed(self, daemon: Daemon) -> bool:
        """Whether the order would change the mode of the daemon."""
        return self.order in commands.allowed(daemon.aim)


def _verb(order: Order) -> DaemonVerb:
    return DaemonVerb(
        name=order.value,
        label=order.label.capitalize(),
        explanation=EXPLANATIONS[order],
        order=order,
        call=lambda daemon, by: command(daemon, order, by=by),
        told=lambda *_: f"It has been told to {order.label}.",
        asks_first=lambda _: order is Order.STOP,
    )


DAEMON_VERBS = tuple(map(_verb, Order))


# The verbs on Instances.


@dataclass(frozen=True, kw_only=True)
class InstanceVerb(Verb):
    """A verb on an Instance.

    The verb is possible in ``states``, or, without these, wherever the table of transitions allows
    ``event`` by ``actor``. ``is_useful(instance, task)`` tells whether the verb would change
    anything; the task may be None.
    """

    event: Event | None = None
    actor: Actor = Actor.ANYONE
    states: frozenset[State] = frozenset()
    is_useful: Callable[[Instance, Task | None], bool] = always

    def is_allowed(self, instance: Instance) -> bool:
        """Whether the state of the Instance allows the verb."""
        if self.event is Event.PAUSE and registry.is_transactional(instance.type.identifier):
            return False
        if self.states:
            return State(instance.state) in self.states
        return self.event in allowed_events(State(instance.state), self.actor)

    @property
    def asks_holder(self) -> bool:
        """Whether only the daemon that holds the Instance can carry the verb out."""
        return self.actor is Actor.HOLDER


@dataclass(frozen=True, kw_only=True)
class DeleteVerb(InstanceVerb):
    """The verb that deletes an Instance; on a live one it also needs the permission to cancel."""

    def permissions(self, subject: Instance) -> tuple[str, ...]:
        return (self.permission,) if subject.is_terminal else (self.permission, OPERATE)


@dataclass(frozen=True, kw_only=True)
class RedriveVerb(InstanceVerb):
    """The verb that redrives an Instance; of a deletion it also needs the permission to delete."""

    def permissions(self, subject: Instance) -> tuple[str, ...]:
        if subject.type.identifier == DELETES:
            return (self.permission, DELETE)
        return (self.permission,)


def _release(instance: Instance, by: str) -> None:
    """Ask the holder to release an Instance. Raises IllegalTransition if no daemon holds it."""
    if not instances.release(instance, by=by):
        raise IllegalTransition(
            f"{instance.uuid} cannot be released: it is {text.state(instance)}, "
            "and no daemon holds it.",
            event=Event.RELEASE,
            state=State(instance.state),
        )


def _run_now(instance: Instance, by: str) -> None:
    """Make a waiting Instance due now. Raises IllegalTransition if it is due or does not wait."""
    task = instances.task(instance)
    is_waiting = task is not None and task.daemon_id is None and not task.is_blocked
    if is_waiting and not _is_due_later(instance, task):
        raise IllegalTransition(
            f"{instance.uuid} cannot be made due: it is {text.state(instance)}, "
            "and is due already.",
            state=State(instance.state),
        )
    change(instance, due=timedelta(), by=by)


def _is_due_later(instance: Instance, task: Task | None) -> bool:
    # A node that waits for others has no due time that anybody has chosen.
    is_waiting = task is not None and task.daemon_id is None and not task.is_blocked
    return is_waiting and task is not None and task.due_at > get_store().now()


def _waits(instance: Instance, task: Task | None) -> bool:
    return task is not None and task.daemon_id is None


def _change(instance: Instance, by: str, **values: Any) -> bool:
    """Change the given values; return whether any were given."""
    if values:
        change(instance, **values, by=by)
    return bool(values)


def _delete(instance: Instance, by: str) -> bool:
    """Delete an Instance, cancelling it first if it is live; return whether it is gone."""
    # An ended Instance is not cancelled, even if somebody redrives it meanwhile.
    return bool(instances.delete(instance, by=by, cancel=not instance.is_terminal))


def _paused(instance: Instance, _: object) -> str:
    if registry.is_stoppable(instance.type.identifier):
        return "It will be paused at once, wherever its handler is."
    return "It will be paused when its handler next calls context.check() or progress()."


def _resumed(instance: Instance, _: object) -> str:
    if instance.state == State.RUNNING:
        return "It runs on: the request to pause it is withdrawn."
    return "It will go on as soon as a worker's place is free."


def _deleted(instance: Instance, is_gone: bool) -> str:
    if is_gone:
        return f"{instance.uuid} is removed."
    if instance.is_terminal:
        return "It stays: somebody has locked it, or its files cannot be removed. Delete it again."
    return "It is cancelled. Delete it again when its daemon has ended it."


INSTANCE_VERBS = (
    RedriveVerb(
        name="redrive",
        label="Redrive",
        explanation="Send the Instance back to the queue; its retries and restarts count anew.",
        told=lambda *_: "It is back in the queue.",
        event=Event.REDRIVE,
        call=instances.redrive,
    ),
    InstanceVerb(
        name="release",
        label="Release",
        explanation="Ask the daemon that holds the Instance to stop the attempt and to hand the "
        "Instance back. It is run again.",
        told=lambda *_: "The daemon that holds it will hand it back. Then it is run again.",
        event=Event.RELEASE,
        actor=Actor.HOLDER,
        call=_release,
    ),
    InstanceVerb(
        name="pause",
        label="Pause",
        explanation="Pause the Instance when its handler next calls context.check() or progress(), "
        "or at once if its Type is stoppable. Another task can run in its place meanwhile.",
        told=_paused,
        event=Event.PAUSE,
        actor=Actor.HOLDER,
        call=instances.pause,
    ),
    InstanceVerb(
        name="resume",
        label="Resume",
        explanation="Let the paused Instance go on, as soon as a worker's place is free.",
        told=_resumed,
        event=Event.RESUME,
        actor=Actor.HOLDER,
        call=instances.resume,
    ),
    InstanceVerb(
        name="run-now",
        label="Run now",
        phrase="Run {} now",
        explanation="Make the waiting Instance due at once.",
        told=lambda *_: "It is due now.",
        states=frozenset({State.ACCEPTED}),
        is_useful=_is_due_later,
        call=_run_now,
    ),
    InstanceVerb(
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
        is_useful=_waits,
        call=_change,
        method="PATCH",
    ),
    InstanceVerb(
        name="cancel",
        label="Cancel",
        explanation="End the Instance for good, as FAILED. A running attempt is interrupted, and "
        "killed if it does not stop.",
        told=lambda *_: "It is cancelled. If a daemon holds it, that daemon ends it.",
        event=Event.FAIL,
        call=instances.cancel,
        # A waiting Instance ends at once; the holder of a claimed one is asked.
        states=LIVE,
        asks_first=lambda instance: instance.state in CLAIMED,
    ),
    DeleteVerb(
        name="delete",
        label="Delete",
        explanation="Remove the Instance for good, with its inputs, response, published files and "
        "log. A live Instance is cancelled first. If a daemon holds it, it is only cancelled: "
        "delete it again when it has ended.",
        told=_deleted,
        states=LIVE | TERMINAL,
        is_final=True,
        call=_delete,
        permission=DELETE,
        method="DELETE",
    ),
)


# The verbs on scopes: the gates and limits of everything, of a Type, of a lane.


class Level(StrEnum):
    EVERYTHING = "everything"
    TYPE = "type"
    LANE = "lane"


# The identifier of a Type and a collection, each of which may be None.
Subject = tuple[str | None, str | None]

GATE, LIMIT = "gate", "limit"


@dataclass(frozen=True, kw_only=True)
class ScopeVerb(Verb):
    """A verb on a scope: a pair of a Type's identifier and a collection, each of which may be None.

    ``levels`` are the levels of scope that it accepts. ``of`` is "gate" or "limit" if the verb sets
    that, otherwise empty.
    """

    levels: frozenset[Level] = frozenset(Level)
    of: str = ""
    permission: str = CONTROL


def level(scope: Subject) -> Level:
    """Return the Level of a scope."""
    type, collection = scope
    if type is None:
        return Level.EVERYTHING
    return Level.TYPE if collection is None else Level.LANE


def _purge(scope: Subject, by: str) -> int:
    type, _ = scope
    if type is not None:
        get_type(type)
    return instances.purge(type, by=by)


def _purged(scope: Subject, count: int) -> str:
    kept = types_without_retention(scope[0])
    more = f" Types without retention: {', '.join(kept)}." if kept else ""
    return f"Instances removed: {count}.{more}"


def _of_gate(mode: str, scope: Subject, gate: Any) -> str:
    was = gate if mode == "open" else gate.was
    return text.of_gate(mode, *scope, was, gates.gates())


_REASON = Parameter(name="reason", kind=Text(), help="Why, for the log and the pages.")
_UNTIL = Parameter(name="until", kind=Moment(), help="When the gate opens by itself.")
_EXPECTED = Parameter(
    name="expected",
    kind=GateState(),
    help="Change nothing unless the gate's state, or its `since`, is this.",
    in_forms=False,
)
_COUNT: dict[str, Any] = {"least": 1, "most": MOST}

SCOPE_VERBS = (
    ScopeVerb(
        name="hold",
        label="Hold",
        explanation="Hold waiting Instances: none is started until the gate opens.",
        call=lambda scope, **given: gates.hold(*scope, **given),
        told=partial(_of_gate, "hold"),
        parameters=(_REASON, _UNTIL, _EXPECTED),
        of=GATE,
    ),
    ScopeVerb(
        name="drop",
        label="Drop",
        explanation="Let all waiting Instances, and all that are enqueued from now on, FAIL as "
        "DROPPED.",
        call=lambda scope, **given: gates.drop(*scope, **given),
        told=partial(_of_gate, "drop"),
        parameters=(_REASON, _UNTIL, _EXPECTED),
        asks_first=lambda _: True,
        of=GATE,
    ),
    ScopeVerb(
        name="open",
        label="Open",
        explanation="Open the gate: waiting Instances are started again.",
        call=lambda scope, **given: gates.open_gate(*scope, **given),
        told=partial(_of_gate, "open"),
        parameters=(_REASON, _EXPECTED),
        of=GATE,
    ),
    ScopeVerb(
        name="limit",
        label="Limit",
        explanation="Limit a Type or a lane over all daemons. Limits that are not given stay.",
        call=lambda scope, **given: gates.limit(*scope, **given),
        told=lambda _, limit: f"The limits are set: {text.of_limits(limit)}.",
        parameters=(
            Parameter(
                name="max_running",
                label="At a time",
                kind=WholeNumber(**_COUNT, zero=HOLD),
                help="The most Instances claimed at any time, over all daemons.",
                can_be_none=True,
            ),
            Parameter(
                name="max_running_per_collection",
                label="At a time of each collection",
                kind=WholeNumber(**_COUNT, zero=HOLD),
                help="The same for each lane of the Type, unless the lane has a limit of its own.",
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
                kind=WholeNumber(**_COUNT, zero=NOTHING_IN),
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
    ScopeVerb(
        name="unlimit",
        label="Leave to the code",
        explanation="Use the limits that the code declares for a Type or a lane.",
        call=lambda scope, by: gates.unlimit(*scope, by=by),
        told=lambda _, left: gates.of_unlimit(left),
        levels=frozenset({Level.TYPE, Level.LANE}),
        of=LIMIT,
    ),
    ScopeVerb(
        name="purge",
        label="Purge",
        explanation="Remove Instances that ended longer ago than the retention of their Type.",
        call=_purge,
        told=_purged,
        is_final=True,
        levels=frozenset({Level.EVERYTHING, Level.TYPE}),
        permission=DELETE,
    ),
)


# The table of verbs: each verb that an operator or a program can use, as one entry.
#
# Shell, API, pages, admin and docs derive from it: a new verb is one entry.

INSTANCE, SCOPE, DAEMON, SCHEDULE, GRAPH = "instance", "scope", "daemon", "schedule", "graph"
DOWNSTREAM, TAILER, MATCHING, ERROR = "downstream", "tailer", "matching", "error"


def _by_name(verbs: Iterable[Any]) -> dict[str, Any]:
    return {verb.name: verb for verb in verbs}


# The verbs by their names, by the kind of their subject.
VERBS = {
    INSTANCE: _by_name(INSTANCE_VERBS),
    SCOPE: _by_name(SCOPE_VERBS),
    DAEMON: _by_name(DAEMON_VERBS),
    SCHEDULE: _by_name(schedules.VERBS),
    GRAPH: _by_name(graphs.VERBS),
    DOWNSTREAM: _by_name(downstreams.VERBS),
    TAILER: _by_name(tailers.VERBS),
    MATCHING: _by_name(matching.ALL_MATCHING),
    ERROR: _by_name(matching.OF_ERROR),
}


def allowed(instance: Instance, task: Task | None = None) -> list[InstanceVerb]:
    """Return the verbs that the state of an Instance allows; see :func:`.allowed_of`."""
    return allowed_of(VERBS[INSTANCE].values(), instance, task)


# The verbs that are allowed on an Instance at this moment.


def allowed_of(
    verbs: Iterable[InstanceVerb], instance: Instance, task: Task | None = None
) -> list[InstanceVerb]:
    """Return the verbs that the state of an Instance allows.

    With its Task, a verb is left out if the holder has been asked for it already, or if only the
    holder can carry it out and the holder is lost. After a cancel the holder is asked nothing else.
    """
    asked = "" if task is None else task.request
    found = [
        verb
        for verb in verbs
        if verb.name != asked and (verb.is_allowed(instance) or _takes_back(verb, asked))
    ]
    if asked == "cancel":
        found = [verb for verb in found if verb.method == "DELETE"]
    if any(verb.asks_holder for verb in found) and _is_lost(task):
        found = [verb for verb in found if not verb.asks_holder]
    return [verb for verb in found if verb.is_useful(instance, task)]


def _is_lost(task: Task | None) -> bool:
    """Whether the lease of the daemon that holds the Task is over."""
    if task is None or task.daemon is None:
        return False
    store = get_store()
    return store.is_over(task.daemon, store.now())


def _takes_back(verb: InstanceVerb, asked: str) -> bool:
    """Whether the verb withdraws a request that is not carried out yet: resume after pause."""
    return verb.event is Event.RESUME and asked == "pause"

"""The verbs on Instances."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ...exceptions import IllegalTransition
from ...models import Instance, Task
from ...states import CLAIMED, LIVE, TERMINAL, Actor, Event, State, allowed_events
from ...store import get_store
from ...words import wording
from ...words.kinds import PRIORITY, Delay, Moment, Text
from .. import instances, removal
from ..changing import change
from ..registry import DELETES, registry
from .verb import DELETE, OPERATE, Parameter, Verb, always


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
            f"{instance.uuid} cannot be released: it is {wording.state(instance)}, "
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
            f"{instance.uuid} cannot be made due: it is {wording.state(instance)}, "
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
    return bool(removal.delete(instance, by=by, cancel=not instance.is_terminal))


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


VERBS = (
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

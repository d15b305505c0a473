"""What can be done with an Instance that exists, as data; pages and API derive from it."""

from collections.abc import Callable
from dataclasses import dataclass

from .. import queue, wording
from ..exceptions import IllegalTransition
from ..registry import registry
from ..states import LIVE, Actor, Event, State, allowed_events


@dataclass(frozen=True, kw_only=True)
class Action:
    """One verb on an Instance; ``done`` tells of it where it was done, of the Instance as it is.

    ``event`` by ``actor`` is what the table of transitions must allow; where ``states``
    are given, it is possible from those.
    """

    name: str
    label: str
    explanation: str
    done: Callable
    event: Event
    actor: Actor
    verb: Callable
    states: frozenset = frozenset()

    def is_allowed(self, instance):
        """Whether the state that the Instance is in allows it."""
        if self.event is Event.PAUSE and registry.is_transactional(instance.type.identifier):
            return False
        if self.states:
            return State(instance.state) in self.states
        return self.event in allowed_events(State(instance.state), self.actor)

    @property
    def asks_holder(self):
        """Whether nobody but a daemon that holds it could do it."""
        return self.actor is Actor.HOLDER

    def perform(self, instance, by):
        """Call the verb; returns what is to be told of it. Raises IllegalTransition."""
        self.verb(instance, by=by)
        return f"It {self.done(instance)}."


def _release(instance, by):
    """Ask the holder, of which there may be none any more."""
    if not queue.release(instance, by=by):
        raise IllegalTransition(
            f"{instance.uuid} cannot be released: it is {wording.state(instance)}, "
            "and no daemon holds it.",
            event=Event.RELEASE,
            state=State(instance.state),
        )


def _paused(instance):
    if registry.is_stoppable(instance.type.identifier):
        return "will be on hold as soon as its daemon has heard of it, wherever its handler is"
    return "will be on hold as soon as its daemon has heard of it and its handler looks"


def _resumed(instance):
    if instance.state == State.RUNNING:
        return "runs on: the wish to pause it is taken back"
    return "will go on as soon as there is a place for it"


ACTIONS = {
    action.name: action
    for action in (
        Action(
            name="redrive",
            label="Redrive",
            explanation="Send it back to the queue, with its budgets as new.",
            done=lambda _: "is back in the queue",
            event=Event.REDRIVE,
            actor=Actor.ANYONE,
            verb=queue.redrive,
        ),
        Action(
            name="release",
            label="Release",
            explanation="Ask the daemon that holds it to stop the attempt and hand it back: "
            "it will be run again.",
            done=lambda _: "will be handed back by the daemon that holds it, and run again",
            event=Event.RELEASE,
            actor=Actor.HOLDER,
            verb=_release,
        ),
        Action(
            name="pause",
            label="Pause",
            explanation="Put it on hold where it next looks, or at once if its Type is stoppable. "
            "Another task has its place meanwhile.",
            done=_paused,
            event=Event.PAUSE,
            actor=Actor.HOLDER,
            verb=queue.pause,
        ),
        Action(
            name="resume",
            label="Resume",
            explanation="Let it go on, as soon as there is a place for it.",
            done=_resumed,
            event=Event.RESUME,
            actor=Actor.HOLDER,
            verb=queue.resume,
        ),
        Action(
            name="cancel",
            label="Cancel",
            explanation="End it for good, as FAILED. What runs is interrupted, and killed if it "
            "takes no notice.",
            done=lambda _: "is cancelled; what a daemon holds, that daemon ends",
            event=Event.FAIL,
            actor=Actor.ANYONE,
            verb=queue.cancel,
            # What waits at once; of what is claimed the holder is asked.
            states=LIVE,
        ),
    )
}


def allowed(instance, task=None):
    """Return the Actions that the state of an Instance allows.

    With its Task, what has been asked of the holder already is left out. After a cancel
    nothing else is asked of it.
    """
    asked = "" if task is None else task.request
    if asked == "cancel":
        return []
    return [
        action
        for action in ACTIONS.values()
        if action.name != asked and (action.is_allowed(instance) or _takes_back(action, asked))
    ]


def _takes_back(action, asked):
    """Whether it takes back what has been asked, and has not happened yet."""
    return action.event is Event.RESUME and asked == "pause"

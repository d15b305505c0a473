"""The verbs that are allowed on an Instance at this moment."""

from collections.abc import Iterable

from ...models import Instance, Task
from ...states import Event
from ...store import get_store
from .instances import InstanceVerb


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

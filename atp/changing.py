"""Changing what waits: the verb; :mod:`atp.queue` is where it is called."""

from datetime import timedelta

from .exceptions import LONGEST_DELAY, IllegalTransition, InvalidOption
from .options import Options, instant
from .states import State
from .steering import refresh
from .store import get_store
from .store.values import Alteration

LONGEST = timedelta(seconds=LONGEST_DELAY)


def change(*instances, priority=None, due=None, postpone=None, collection=None, by=""):
    """Change Instances that wait: priority, due time, collection.

    ``due`` is a datetime, or a timedelta from now; ``timedelta(0)`` is "run now".
    ``postpone`` is a timedelta: so much later than it was due, or than now if it is
    due. What is not given stays as it is, and so does ``start_before``. Raises
    InvalidOption, with nothing changed; or IllegalTransition if one does not wait:
    the others are changed.
    """
    store = get_store()
    alteration = alteration_of(
        priority=priority, due=due, postpone=postpone, collection=collection, now=store.now
    )
    changed = store.change([instance.pk for instance in instances], alteration, who=by)
    refresh(instances)
    for instance in instances:
        if instance.pk not in changed:
            raise IllegalTransition(
                f"{instance.uuid} cannot be changed: it is {instance.state}, not {State.ACCEPTED}.",
                state=State(instance.state),
            )


def alteration_of(*, priority=None, due=None, postpone=None, collection=None, now):
    """Return the checked :class:`Alteration`. Raises InvalidOption."""
    given = {"priority": priority, "collection": collection}
    given = {name: value for name, value in given.items() if value is not None}
    if not given and due is None and postpone is None:
        raise InvalidOption("Nothing to change: give priority, due, postpone or collection.")
    if due is not None and postpone is not None:
        raise InvalidOption("Give either due or postpone: both say when it is due.")
    Options(**given).check()
    if due is not None:
        checked = instant("due", due, now)
        # From now is from when it is written.
        due = due if isinstance(due, timedelta) else checked
    if postpone is not None and not (
        isinstance(postpone, timedelta) and timedelta() <= postpone <= LONGEST
    ):
        raise InvalidOption(
            f"postpone={postpone!r}: must be a timedelta from 0 to {LONGEST.days} days."
        )
    return Alteration(due=due, postpone=postpone, **given)

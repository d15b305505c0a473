"""Changing what waits: the verb; :mod:`atp.queue` is where it is called."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from ..exceptions import LONGEST_DELAY, IllegalTransition, InvalidOption
from ..states import State
from ..store import get_store
from ..store.values import Changes
from ..words import wording
from ..words.options import Options, instant
from .instances import InstanceLike, meant, refresh

LONGEST = timedelta(seconds=LONGEST_DELAY)


def change(
    *instances: InstanceLike,
    priority: int | None = None,
    due: datetime | timedelta | None = None,
    postpone: timedelta | None = None,
    collection: str | None = None,
    by: str = "",
) -> None:
    """Change Instances that wait: priority, due time, collection.

    ``due`` is a datetime, or a timedelta from now; ``timedelta(0)`` is "run now".
    ``postpone`` is a timedelta: so much later than it was due, or than now if it is
    due. What is not given stays as it is, and so does ``start_before``. Raises
    InvalidOption, with nothing changed; or IllegalTransition if one does not wait:
    the others are changed. An Instance is given as itself or by its uuid.
    """
    instances = meant(instances, by)
    store = get_store()
    changes = checked(
        priority=priority, due=due, postpone=postpone, collection=collection, now=store.now
    )
    changed = store.change([instance.pk for instance in instances], changes, who=by)
    refresh(instances)
    for instance in instances:
        if instance.pk not in changed:
            raise IllegalTransition(
                f"{instance.uuid} cannot be changed: it is {wording.state(instance)}, "
                f"not {State.ACCEPTED}.",
                state=State(instance.state),
            )


def checked(
    *,
    priority: int | None = None,
    due: datetime | timedelta | None = None,
    postpone: timedelta | None = None,
    collection: str | None = None,
    now: Callable[[], datetime],
    due_name: str = "due",
) -> Changes:
    """Return the checked :class:`Changes`. Raises InvalidOption, which calls ``due`` so."""
    given: dict[str, Any] = {"priority": priority, "collection": collection}
    given = {name: value for name, value in given.items() if value is not None}
    if not given and due is None and postpone is None:
        raise InvalidOption(
            f"Nothing to change: give priority, {due_name}, postpone or collection."
        )
    if due is not None and postpone is not None:
        raise InvalidOption(f"Give either {due_name} or postpone: both say when it is due.")
    Options(**given)
    if isinstance(due, timedelta) and due < timedelta():
        raise InvalidOption(f"{due_name}={due!r}: must be 0 or more from now.")
    if due is not None:
        checked = instant(due_name, due, now)
        # From now is from when it is written.
        due = due if isinstance(due, timedelta) else checked
    if postpone is not None and not (
        isinstance(postpone, timedelta) and timedelta() <= postpone <= LONGEST
    ):
        raise InvalidOption(
            f"postpone={postpone!r}: must be a timedelta from 0 to {LONGEST.days} days."
        )
    return Changes(due=due, postpone=postpone, **given)

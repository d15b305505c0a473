"""The verb that changes waiting Instances; callers use it through :mod:`atp.queue`."""

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
from .migrated import needs_tables

LONGEST = timedelta(seconds=LONGEST_DELAY)


@needs_tables
def change(
    *instances: InstanceLike,
    priority: int | None = None,
    due: datetime | timedelta | None = None,
    postpone: timedelta | None = None,
    collection: str | None = None,
    by: str = "",
) -> None:
    """Change the priority, due time or collection of waiting Instances.

    An Instance is given as itself or by its uuid. ``due`` is a datetime, or a timedelta from
    now; ``timedelta(0)`` is "run now". ``postpone`` is a timedelta that is added to the due
    time, or to now if that has passed. An option that is not given stays as it is, and so does
    ``start_before``. Raises InvalidOption, with nothing changed; or IllegalTransition if one
    does not wait, after the others have been changed.
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
    """Check the options of a change and return them as :class:`Changes`. Raises InvalidOption.

    ``due_name`` is the name of ``due`` in error messages.
    """
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
        # A timedelta counts from the time of the write, so it is kept as it is.
        due = due if isinstance(due, timedelta) else checked
    if postpone is not None and not (
        isinstance(postpone, timedelta) and timedelta() <= postpone <= LONGEST
    ):
        raise InvalidOption(
            f"postpone={postpone!r}: must be a timedelta from 0 to {LONGEST.days} days."
        )
    return Changes(due=due, postpone=postpone, **given)

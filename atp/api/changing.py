"""The body of a change of what waits."""

from datetime import timedelta

from .. import overview, queue
from ..changing import LONGEST, alteration_of
from ..conf import did_you_mean
from ..exceptions import InvalidOption
from . import moments
from .problems import BODY, wrong

FIELDS = ("priority", "due_at", "postpone", "collection")


def change(instance, data, *, by):
    """Change an Instance as the body says. Raises ProblemError, or what ``queue.change`` does."""
    if not isinstance(data, dict):
        raise wrong(BODY, [("", "It must be a JSON object.")])
    errors = [
        (name, f"There is no field {name!r}.{did_you_mean(name, FIELDS)}")
        for name in data
        if name not in FIELDS
    ]
    given = {}
    for name in FIELDS:
        if name in data:
            try:
                given[name] = _READERS[name](data[name])
            except InvalidOption as error:
                errors.append((name, str(error)))
    if errors:
        raise wrong(BODY, errors)
    given["due"] = given.pop("due_at", None)
    alteration_of(**given, now=overview.now, due_name="due_at")
    queue.change(instance, **given, by=by)


def _priority(value):
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # the same number, as JSON has it
    return _checked("priority", value)


def _collection(value):
    return _checked("collection", value)


def _checked(name, value):
    if value is None:
        raise InvalidOption(f"{name}={value!r}: leave it out if it is to stay as it is.")
    alteration_of(**{name: value}, now=overview.now)
    return value


def _due(value):
    due = moments.read("due_at", value)
    alteration_of(due=due, now=overview.now, due_name="due_at")
    return due


def _postpone(value):
    most = LONGEST.total_seconds()
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= most:
        raise InvalidOption(f"postpone must be a number of seconds from 0 to {most:.0f}.")
    return timedelta(seconds=value)


_READERS = {"priority": _priority, "collection": _collection, "due_at": _due, "postpone": _postpone}

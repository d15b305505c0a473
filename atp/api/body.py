"""The body of an enqueue: one item, or an array of them, as calls for the queue.

Everything is checked before anything is written (G13), and what is wrong is
told with its place: ``[3].inputs.azimuth``.
"""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from functools import cache

from .. import binding, codec, overview, queue
from ..conf import did_you_mean
from ..exceptions import (
    ATPError,
    CorruptData,
    DuplicateIdentifier,
    InvalidInputs,
    InvalidOption,
    UnknownType,
)
from ..options import Options, check_text
from ..web.problems import problem_of
from . import moments
from .problems import BODY, MOST, ProblemError, wrong

# Items of one request.
MOST_ITEMS = 1000
_MOMENTS = ("run_after", "start_before")
_OPTIONS = ("identifier", "existing", "priority", "collection", *_MOMENTS)
_FIELDS = ("type", "inputs", *_OPTIONS)
_MAY_BE_NULL = ("identifier", *_MOMENTS)


def read(data, *, by):
    """Return the calls that a body stands for. Raises ProblemError."""
    items = data if isinstance(data, list) else [data]
    if not 1 <= len(items) <= MOST_ITEMS:
        raise wrong(BODY, [("", f"An array has 1 to {MOST_ITEMS} items, not {len(items)}.")])
    reader, calls, errors = _Reader(by), [], []
    for number, item in enumerate(items):
        place = f"[{number}]" if isinstance(data, list) else ""
        call, found = reader.read(item)
        calls.append(call)
        errors += [(_joined(place, field), text) for field, text in found]
        if len(errors) >= MOST:
            break
    if errors:
        raise wrong(BODY, errors)
    return calls


def enqueue(data, *, by):
    """Enqueue what a body says, all or none; returns the Instances. Raises ProblemError."""
    calls = read(data, by=by)
    try:
        return queue.enqueue_calls(calls)
    except ATPError as error:
        problem = problem_of(error)
        if problem is None:
            raise
        number = getattr(error, "call", None)
        if isinstance(error, DuplicateIdentifier):
            number = _taken(calls, error)
        place = f"[{number}]" if isinstance(data, list) and number is not None else ""
        errors = problem.errors or [(_field(error), str(error))]
        placed = tuple((_joined(place, field), text) for field, text in errors)
        raise ProblemError(replace(problem, errors=placed)) from error


def _joined(place, field):
    return f"{place}.{field}" if place and field else place or field


def _field(error):
    return "identifier" if isinstance(error, DuplicateIdentifier) else "inputs"


def _taken(calls, error):
    """Return the number of the first call whose identifier was taken by ``error.instance``.

    There is none if another call of the same request took it.
    """
    seen = Counter()
    for number, call in enumerate(calls):
        key = (call.task_type.identifier, call.task_type.options.identifier)
        seen[key] += 1
        if error.instance is None:
            is_taken = key[1] is not None and seen[key] > 1
        else:
            is_taken = key == (error.instance.type.identifier, error.instance.identifier)
        if is_taken and call.task_type.options.existing == "raise":
            return number
    return None


class _Reader:
    """Reads items; each Type is looked up once, and the clock is read once."""

    def __init__(self, by):
        self._by = by
        self._declared = cache(queue.declared)
        self._now = cache(overview.now)

    def read(self, item):
        """Return the call of an item, and what is wrong: pairs of a field and a text."""
        if not isinstance(item, dict):
            return None, [("", "It must be a JSON object.")]
        errors = [
            (name, f"There is no field {name!r}.{did_you_mean(name, _FIELDS)}")
            for name in item
            if name not in _FIELDS
        ]
        task_type = self._read(errors, "type", self._type, item.get("type"))
        args, kwargs = self._read(errors, "inputs", _inputs, item.get("inputs", {})) or ((), {})
        options = {"created_by": self._by}
        for name in _OPTIONS:
            if name in item and not (item[name] is None and name in _MAY_BE_NULL):
                options[name] = self._read(errors, name, self._option, name, item[name])
        if not errors:
            errors += _contradictions(options, self._now)
        if errors:
            return None, errors
        return queue.Call(task_type=task_type.using(**options), args=args, kwargs=kwargs), []

    @staticmethod
    def _read(errors, field, read, *args):
        try:
            return read(*args)
        except InvalidInputs as error:
            errors.append((field, str(error)))
        except (InvalidOption, UnknownType, CorruptData) as error:
            errors.append((field, str(error)))
        return None

    def _type(self, identifier):
        if not isinstance(identifier, str):
            raise UnknownType("The identifier of a Type is needed, as text.")
        return self._declared(identifier)

    def _option(self, name, value):
        if name in _MOMENTS:
            value = self._moment(name, value)
        elif isinstance(value, float) and value.is_integer():
            value = int(value)  # the same number, as JSON has it
        if name == "identifier":
            check_text(name, value, empty=False)
        else:
            Options(**{name: value}).checked(self._now)
        return value

    def _moment(self, name, value):
        moment = moments.read(name, value)
        return self._now() + moment if isinstance(moment, timedelta) else moment


def _inputs(value):
    return binding.arguments(codec.from_plain(value))


def _contradictions(options, now):
    """What only two options together are wrong about."""
    if "existing" in options and "identifier" not in options:
        return [("existing", "It says what to do if the identifier is taken: give one.")]
    times = {name: options[name] for name in _MOMENTS if name in options}
    try:
        Options(**times).checked(now)
    except InvalidOption as error:
        return [("start_before", str(error))]
    return []

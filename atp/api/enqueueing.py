"""The body of an enqueue: checked in full before any write (G13); errors name their place."""

import json
from collections import Counter
from dataclasses import replace
from functools import cache

from rest_framework import serializers as rest

from .. import contracts, queue
from ..conf import settings
from ..exceptions import (
    ATPError,
    DuplicateIdentifier,
    IllegalTransition,
    InvalidInputs,
    InvalidOption,
    QueueFull,
    TooLarge,
    UniqueTaken,
)
from ..models import Inputs
from ..operations.enqueueing import check_existing, payload_of
from ..operations.operation import PRIORITY, RETRIES, TIMEOUT, Arguments, Choice, Kind, Moment, Text
from ..options import EXISTING, OF_UNIQUE, Options, check_text
from ..payload import codec
from ..payload.binding import masked_json
from ..reports import overview
from ..web import permissions
from ..web.problems import problem_of
from .problems import MOST, ProblemError, detail_of, joined
from .schema import TAGGED, Strict, TypeIdentifier, Value, checked

# The most items in one request.
MAX_ITEMS = 1000
_TIMES = ("run_after", "start_before")
_OPTIONS = (
    "identifier",
    "existing",
    "priority",
    "collection",
    "timeout",
    "max_retries",
    "unique",
    *_TIMES,
)


class Identifier(Kind):
    schema = Text.schema | {"minLength": 1}

    def from_json(self, value):
        check_text("identifier", value, empty=False)
        return value


class Items(rest.ListSerializer):
    """An array of calls. Validation stops after ``MOST`` errors."""

    def run_validation(self, data=rest.empty):
        if not 1 <= len(data) <= MAX_ITEMS:
            text = f"An array has 1 to {MAX_ITEMS} items, not {len(data)}."
            raise rest.ValidationError({"": [text]})
        read, errors, count = [], {}, 0
        for number, item in enumerate(data):
            try:
                read.append(self.child.run_validation(item))
            except rest.ValidationError as error:
                errors[number] = error.detail
                count += len(error.detail)
            if count >= MOST:
                break
        if errors:
            raise rest.ValidationError(errors)
        return read


class EnqueueSerializer(Strict):
    # Its validated data is a Call. Each Type is looked up once, and the clock is read once.

    type = Value(TypeIdentifier(), "Identifier of a Type that is declared.", required=True)
    inputs = Value(
        Arguments(),
        "An object of arguments by name, or an array of arguments by position; in an object, "
        f'the array under `"*"` has those by position. {TAGGED}',
    )
    identifier = Value(
        Identifier(), "Idempotency key, unique within the Type; printable.", allow_null=True
    )
    unique = Value(
        Identifier(), "Key of one live Instance of the Type at most; printable.", allow_null=True
    )
    existing = Value(
        Choice(EXISTING),
        "If the identifier is taken: refuse, return the existing Instance, or redrive that if it "
        "FAILED. If the unique key is taken: refuse, return the live Instance, replace its inputs, "
        "or debounce it: move it to run_after.",
    )
    priority = Value(PRIORITY, "Higher first. The Type may have a default.")
    collection = Value(
        Text(), "Label of a subset of the Type's Instances; printable. The Type may have a default."
    )
    run_after = Value(
        Moment(), "The earliest start: a time with an offset, or seconds from now.", allow_null=True
    )
    start_before = Value(
        Moment(),
        "The latest start, else FAILED (MISSED): a time with an offset, or seconds from now.",
        allow_null=True,
    )

    timeout = Value(TIMEOUT, "In seconds; by default that of the Type.", allow_null=True)
    max_retries = Value(RETRIES, "By default that of the Type.", allow_null=True)

    max_items = MAX_ITEMS

    class Meta:
        list_serializer_class = Items

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._declared, self._now = cache(queue.declared), cache(overview.now)

    def validate_type(self, identifier):
        return checked(self._declared, identifier)

    def validate_run_after(self, moment):
        return self._time("run_after", moment)

    def validate_start_before(self, moment):
        return self._time("start_before", moment)

    def _time(self, name, moment):
        return getattr(checked(Options(**{name: moment}).checked, self._now), name)

    def validate(self, attrs):
        options = {name: attrs[name] for name in _OPTIONS if attrs.get(name) is not None}
        if "existing" in options and not options.keys() & {"identifier", "unique"}:
            text = "Give an identifier or a unique key: `existing` is about one that is taken."
            raise rest.ValidationError({"existing": [text]})
        try:
            check_existing(Options(**options), options.get("identifier"))
        except InvalidOption as error:
            raise rest.ValidationError({"existing": [str(error)]}) from None
        times = {name: options[name] for name in _TIMES if name in options}
        try:
            Options(**times).checked(self._now)
        except InvalidOption as error:
            raise rest.ValidationError({"start_before": [str(error)]}) from None
        task_type = attrs["type"].using(created_by=self.context["by"], **options)
        args, kwargs = attrs.get("inputs", ((), {}))
        return queue.Call(task_type=task_type, args=args, kwargs=kwargs)


# The option that an error of this class is about.
_NAMES = {DuplicateIdentifier: "identifier", UniqueTaken: "unique"}


def enqueue(calls, user, *, many):
    """Enqueue calls, all or none, and return the Instances. Raises ProblemError."""
    permissions.require_enqueue(user, [call.task_type for call in calls])
    try:
        _check_contracts(calls, many=many)
        return permissions.enqueue(user, calls)
    except ATPError as error:
        problem = problem_of(error)
        if problem is None:
            raise
        if isinstance(error, QueueFull):
            raise ProblemError(problem) from error
        is_taken = isinstance(error, DuplicateIdentifier)
        number = _taken(calls, error) if is_taken else getattr(error, "call", None)
        place = f"[{number}]" if many and number is not None else ""
        field = {**_NAMES, IllegalTransition: "existing"}.get(type(error), "inputs")
        errors = problem.errors or [(field, str(error))]
        errors = tuple((joined(place, field), text) for field, text in errors)
        detail = detail_of(errors) if place else problem.detail
        raise ProblemError(replace(problem, errors=errors, detail=detail)) from error


def _check_contracts(calls, *, many):
    """Raise a ProblemError with the errors of all calls whose inputs break their contract."""
    errors, details = [], []
    for number, call in enumerate(calls):
        try:
            contracts.require(call.task_type, call.args, call.kwargs)
        except InvalidInputs as error:
            problem = problem_of(error)
            place = f"[{number}]" if many else ""
            errors += [(joined(place, field), text) for field, text in problem.errors]
            details.append(problem.detail)
        except TooLarge as error:
            error.call = number
            raise
        if len(errors) >= MOST:
            break
    if errors:
        errors = tuple(errors[:MOST])
        detail = detail_of(errors) if many else details[0]
        raise ProblemError(replace(problem, errors=errors, detail=detail))


def _taken(calls, error):
    """Return the index of the first call whose identifier or unique key is taken.

    ``error.instance`` has it, or an earlier call of the same request if that is None.
    """
    seen, name = Counter(), _NAMES[type(error)]
    for number, call in enumerate(calls):
        key = (call.task_type.identifier, getattr(call.task_type.options, name))
        seen[key] += 1
        if error.instance is None:
            is_taken = key[1] is not None and seen[key] > 1
        else:
            is_taken = key == (error.instance.type.identifier, getattr(error.instance, name))
        if is_taken and call.task_type.options.existing in ("raise", *OF_UNIQUE):
            return number
    return None


def arrivals(calls, instances, *, sees_inputs):
    """Return the keys ``is_new`` and ``inputs_differ`` of each call's document.

    The second is left out for who may not see inputs: it would confirm those that are guessed.
    """
    seen, arrived = set(), []
    for instance in instances:
        arrived.append(instance.is_new and instance.pk not in seen)
        seen.add(instance.pk)
    if not sees_inputs:
        return [{"is_new": is_new} for is_new in arrived]
    old = [instance.pk for instance, is_new in zip(instances, arrived, strict=True) if not is_new]
    stored = Inputs.objects.using(settings.DATABASE).in_bulk(old) if old else {}
    return [
        {
            "is_new": is_new,
            "inputs_differ": False if is_new else _differ(call, stored.get(instance.pk)),
        }
        for call, instance, is_new in zip(calls, instances, arrived, strict=True)
    ]


def _differ(call, stored):
    """Return whether inputs differ from the stored ones; None for a pickle (G14)."""
    sent = payload_of(call.task_type, call.args, call.kwargs)
    if stored is None or {sent.format, stored.format} != {codec.JSON}:
        return None
    try:
        names = call.task_type.sensitive
        return _canonical(sent.data, names) != _canonical(stored.data, names)
    except (ValueError, RecursionError):
        return None


def _canonical(text, names):
    """Return JSON text with sorted names, so that equal values have equal texts.

    What is sensitive is not compared: an enqueue could guess at it.
    """
    return json.dumps(json.loads(masked_json(text, names)), sort_keys=True)

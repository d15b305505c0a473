"""The body of an enqueue request.

All of the body is checked before anything is written (guarantee G13). Each error names the place in
the body that is wrong.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any

from rest_framework import serializers as rest

from .. import contracts, queue
from ..authoring.task_type import TaskType
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
from ..models import Inputs, Instance
from ..operations.enqueueing import check_existing, payload_of
from ..operations.operation import PRIORITY, RETRIES, TIMEOUT, Arguments, Choice, Kind, Moment, Text
from ..options import EXISTING, OF_UNIQUE, Options, check_text
from ..payload import codec
from ..payload.binding import mask_json
from ..reports import overview
from ..web import permissions
from ..web.problems import problem_of
from .problems import MOST, ProblemError, detail_of, join_place
from .schema import TAGGED, KindField, StrictSerializer, TypeIdentifier, checked

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
# The option that each class of error is about.
_NAMES: dict[type[Exception], str] = {DuplicateIdentifier: "identifier", UniqueTaken: "unique"}


class Identifier(Kind):
    schema = Text.schema | {"minLength": 1}

    def from_json(self, value: Any) -> str:
        check_text("identifier", value, empty=False)
        return value


class Items(rest.ListSerializer):
    """The serializer for an array of enqueue calls. Validation stops after ``MOST`` errors."""

    def run_validation(self, data: Any = rest.empty) -> list[queue.Call]:
        if not 1 <= len(data) <= MAX_ITEMS:
            text = f"An array has 1 to {MAX_ITEMS} items, not {len(data)}."
            raise rest.ValidationError({"": [text]})
        calls: list[queue.Call] = []
        errors: dict[int, Any] = {}
        count = 0
        for number, item in enumerate(data):
            try:
                calls.append(self.child.run_validation(item))
            except rest.ValidationError as error:
                errors[number] = error.detail
                count += len(error.detail)
            if count >= MOST:
                break
        if errors:
            raise rest.ValidationError(errors)
        return calls


class EnqueueSerializer(StrictSerializer):
    # Its validated data is a Call. Each Type is looked up once, and the clock is read once.

    type = KindField(TypeIdentifier(), "Identifier of a Type that is declared.", required=True)
    inputs = KindField(
        Arguments(),
        "An object of arguments by name, or an array of arguments by position; in an object, "
        f'the array under `"*"` has those by position. {TAGGED}',
    )
    identifier = KindField(
        Identifier(), "Idempotency key, unique within the Type; printable.", allow_null=True
    )
    unique = KindField(
        Identifier(), "Key of one live Instance of the Type at most; printable.", allow_null=True
    )
    existing = KindField(
        Choice(EXISTING),
        "If the identifier is taken: refuse, return the existing Instance, or redrive that if it "
        "FAILED. If the unique key is taken: refuse, return the live Instance, replace its inputs, "
        "or debounce it: move it to run_after.",
    )
    priority = KindField(PRIORITY, "Higher first. The Type may have a default.")
    collection = KindField(
        Text(), "Label of a subset of the Type's Instances; printable. The Type may have a default."
    )
    run_after = KindField(
        Moment(), "The earliest start: a time with an offset, or seconds from now.", allow_null=True
    )
    start_before = KindField(
        Moment(),
        "The latest start, else FAILED (MISSED): a time with an offset, or seconds from now.",
        allow_null=True,
    )

    timeout = KindField(TIMEOUT, "In seconds; by default that of the Type.", allow_null=True)
    max_retries = KindField(RETRIES, "By default that of the Type.", allow_null=True)

    max_items = MAX_ITEMS

    class Meta:
        list_serializer_class = Items

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._declared, self._now = cache(queue.declared), cache(overview.now)

    def validate_type(self, identifier: str) -> TaskType[Any, Any]:
        return checked(self._declared, identifier)

    def validate_run_after(self, moment: datetime | timedelta | None) -> datetime | None:
        return self._in_utc("run_after", moment)

    def validate_start_before(self, moment: datetime | timedelta | None) -> datetime | None:
        return self._in_utc("start_before", moment)

    def _in_utc(self, name: str, moment: datetime | timedelta | None) -> datetime | None:
        option: dict[str, Any] = {name: moment}
        return getattr(checked(Options(**option).checked, self._now), name)

    def validate(self, attrs: dict[str, Any]) -> queue.Call:
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


def enqueue(calls: Sequence[queue.Call], user: Any, *, many: bool) -> list[Instance]:
    """Enqueue all calls or none of them for a user, and return the Instances.

    If ``many`` is True, each error names the index of the call that is wrong. Raises ProblemError.
    """
    permissions.require_enqueue(user, [call.task_type for call in calls])
    return enqueue_checked(calls, partial(permissions.enqueue, user), many=many)


def enqueue_checked(
    calls: Sequence[queue.Call],
    enqueue: Callable[[Sequence[queue.Call]], list[Instance]] = queue.enqueue_calls,
    *,
    many: bool = False,
) -> list[Instance]:
    """Enqueue calls whose inputs fit their contracts. Raises ProblemError."""
    try:
        _check_contracts(calls, many=many)
        return enqueue(calls)
    except ATPError as error:
        problem = problem_of(error)
        if problem is None:
            raise
        if isinstance(error, QueueFull):
            raise ProblemError(problem) from error
        is_taken = isinstance(error, DuplicateIdentifier)
        number = _index_of_taken(calls, error) if is_taken else getattr(error, "call", None)
        place = f"[{number}]" if many and number is not None else ""
        field = {**_NAMES, IllegalTransition: "existing"}.get(type(error), "inputs")
        errors = problem.errors or [(field, str(error))]
        errors = tuple((join_place(place, field), text) for field, text in errors)
        detail = detail_of(errors) if place else problem.detail
        raise ProblemError(replace(problem, errors=errors, detail=detail)) from error


def _check_contracts(calls: Sequence[queue.Call], *, many: bool) -> None:
    """Raise one ProblemError that lists the errors of all calls with invalid inputs.

    Inputs are invalid if they break the contract of their Type.
    """
    problem: Any = None
    errors: list[tuple[str, str]] = []
    details = []
    for number, call in enumerate(calls):
        try:
            contracts.require(call.task_type, call.args, call.kwargs)
        except InvalidInputs as error:
            problem = problem_of(error)
            place = f"[{number}]" if many else ""
            errors += [(join_place(place, field), text) for field, text in problem.errors]
            details.append(problem.detail)
        except TooLarge as error:
            error.call = number
            raise
        if len(errors) >= MOST:
            break
    if errors:
        reported = tuple(errors[:MOST])
        detail = detail_of(reported) if many else details[0]
        raise ProblemError(replace(problem, errors=reported, detail=detail))


def _index_of_taken(calls: Sequence[queue.Call], error: Any) -> int | None:
    """Return the index of the first call whose identifier or unique key is taken, or None.

    The Instance ``error.instance`` has that identifier or key already. If ``error.instance`` is
    None, an earlier call in the same request has it.
    """
    seen: Counter[tuple[str, str | None]] = Counter()
    name = _NAMES[type(error)]
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


def describe_arrivals(
    calls: Iterable[queue.Call], instances: Sequence[Instance], *, sees_inputs: bool
) -> list[dict[str, Any]]:
    """Return a dict with the keys ``is_new`` and ``inputs_differ`` for each call.

    If the user may not see inputs, the dicts lack ``inputs_differ``, because its value would tell
    the user whether guessed inputs are right.
    """
    seen: set[int] = set()
    arrived = []
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


def _differ(call: queue.Call, stored: Inputs | None) -> bool | None:
    """Return True if a call's inputs differ from the stored inputs, or None if that is unknown.

    It is unknown for pickles, for example, because this process opens none (guarantee G14).
    """
    sent = payload_of(call.task_type, call.args, call.kwargs)
    if stored is None or {sent.format, stored.format} != {codec.JSON}:
        return None
    try:
        names = call.task_type.sensitive
        return _canonical(sent.data, names) != _canonical(stored.data, names)
    except (ValueError, RecursionError):
        return None


def _canonical(text: str, names: Collection[str]) -> str:
    """Return JSON text with sorted keys, so that equal values have equal texts.

    Sensitive arguments are masked, so that users cannot find them out by comparing guesses.
    """
    return json.dumps(json.loads(mask_json(text, names)), sort_keys=True)

"""Enqueue one Instance, many of one Type, or calls of several Types.

Each enqueue binds the arguments to the handler, checks and serializes them, checks that the queue
has room, and writes the Instances.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from django.db import transaction

from .. import middleware, signals
from ..conf import settings
from ..exceptions import ATPError, InvalidInputs, InvalidOption
from ..models import HOOKED
from ..options import OF_UNIQUE, Options, check_text, own_options
from ..payload import binding, codec
from ..store import get_store
from ..store.values import Registration, Submission
from ..text import as_timedelta
from .admission import admit, is_limited
from .base import needs_tables

if TYPE_CHECKING:
    from ..models import Instance
    from ..store.protocol import Store
    from .registry import Declaration


# The arguments of a handler.
P = ParamSpec("P")
# A row of many inputs, before and after it is read.
A = TypeVar("A")
B = TypeVar("B")


# Enqueueing one Instance, many Instances of one Type, or calls of several Types.


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of a handler that can be enqueued: a declared Type with options, and the arguments."""

    task_type: Declaration
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@needs_tables
def enqueue(task_type: Declaration[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Instance:
    """Enqueue one Instance; see :meth:`atp.TaskType.enqueue`."""
    store = get_store()
    submission = _make_submission(store, task_type, args, kwargs)
    instances = _write(store, [task_type], [submission])
    _send_signals(instances)
    return instances[0]


def _send_signals(instances: Iterable[Instance]) -> None:
    """Send the signal ``enqueued`` for each new Instance."""
    # Each enqueue calls this, and reading the list is quicker than has_listeners().
    if signals.enqueued.receivers:
        for instance in instances:
            if instance.is_new:
                signals.enqueued.send_robust(sender=type(instance), instance=instance)


def _make_submission(
    store: Store, task_type: Declaration, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Submission:
    options = task_type.options.checked(store.now)
    check_existing(options, options.identifier)
    limit = settings.MAX_INPUTS_SIZE
    return submission_of(task_type, args, kwargs, options, options.identifier, limit)


@needs_tables
def enqueue_many(
    task_type: Declaration,
    inputs: Iterable[Mapping[str, Any] | Sequence[Any]],
    *,
    identifiers: Iterable[str | None] | None = None,
) -> Sequence[Instance]:
    """Enqueue many Instances, all or none; see :meth:`atp.TaskType.enqueue_many`."""
    arguments = _read_rows(read_input, inputs)
    names = identifiers_of(task_type, len(arguments), identifiers)
    store = get_store()
    # One check of the options is enough for all Instances.
    options = task_type.options.checked(store.now)
    limit = settings.MAX_INPUTS_SIZE

    def make_submission(row: tuple[Any, str | None]) -> Submission:
        (args, kwargs), name = row
        return submission_of(task_type, args, kwargs, options, name, limit)

    submissions = _read_rows(make_submission, zip(arguments, names, strict=True))
    instances = _write(store, [task_type], submissions)
    _send_signals(instances)
    return instances


def _read_rows(read: Callable[[A], B], rows: Iterable[A]) -> list[B]:
    """Return ``read(row)`` for each row. If one raises an ATPError, add the row's number to it."""
    results = []
    for number, row in enumerate(rows):
        try:
            results.append(read(row))
        except ATPError as error:
            error.call = number
            error.args = (f"Row {number}, counted from 0: {error}", *error.args[1:])
            raise
    return results


@needs_tables
def enqueue_calls(calls: Iterable[Call]) -> list[Instance]:
    """Enqueue calls of any Types, each with its own options: either all of them or none.

    Returns the Instances in the order of the calls. Raises the exceptions of
    :meth:`atp.TaskType.enqueue`. If a call is invalid, ``error.call`` is its position, from 0.
    """
    prepared = []
    for number, call in enumerate(calls):
        try:
            prepared.append(prepare_call(call))
        except ATPError as error:
            error.call = number
            raise
    return enqueue_prepared(prepared)


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call that is checked and serialized, but not enqueued yet."""

    task_type: Declaration
    submission: Submission


def prepare_call(call: Call) -> PreparedCall:
    """Check and serialize a call; :func:`enqueue_prepared` enqueues it.

    Raises the exceptions of :meth:`atp.TaskType.enqueue`, except those that depend on the queue:
    QueueFull, DuplicateIdentifier and UniqueTaken.
    """
    submission = _make_submission(get_store(), call.task_type, call.args, call.kwargs)
    return PreparedCall(call.task_type, submission)


def enqueue_prepared(prepared: Sequence[PreparedCall]) -> list[Instance]:
    """Enqueue either all of these calls or none.

    Returns the Instances in the order of the calls.
    """
    of_type = defaultdict(list)
    for number, each in enumerate(prepared):
        numbered = (number, each.task_type, each.submission)
        of_type[each.task_type.identifier].append(numbered)
    store = get_store()
    enqueued: dict[int, Instance] = {}
    # For one Type the store's own transaction is enough.
    together = transaction.atomic(using=settings.DATABASE) if len(of_type) > 1 else nullcontext()
    with together:
        # All processes take the locks of Types in the same order.
        for _, numbered in sorted(of_type.items()):
            numbers, task_types, submissions = zip(*numbered, strict=True)
            written = _write(store, task_types, list(submissions))
            enqueued.update(zip(numbers, written, strict=True))
    instances = [enqueued[number] for number in sorted(enqueued)]
    _send_signals(instances)
    return instances


def _write(
    store: Store, task_types: Sequence[Declaration], submissions: Sequence[Submission]
) -> Sequence[Instance]:
    """Enqueue either all of these Submissions of one Type or none.

    ``task_types`` has the declaration with the options of each Submission, or a single declaration
    for all of them. Raises QueueFull, and the exceptions of the store.
    """
    first, *others = task_types
    registration = first.registration()
    if others:
        registration = Registration.of_all(each.registration() for each in task_types)
    if not submissions or not is_limited(store, first):
        return store.enqueueing.enqueue(registration, submissions)
    options = [each.options for each in task_types]
    if not others:
        options *= len(submissions)
    with admit(store, first, submissions, options) as let_in:
        return store.enqueueing.enqueue(registration, let_in)


# Identifiers and unique keys, and the option ``existing``.


def check_existing(options: Options, identifier: str | None) -> None:
    """Raise InvalidOption unless the option ``existing`` fits the other options of an enqueue.

    ``existing`` says what the enqueue does if an Instance already has the identifier or the
    unique key.
    """
    existing, unique = options.existing, options.unique
    if unique is not None and identifier is not None:
        raise InvalidOption(f"Give either unique={unique!r} or an identifier, not both.")
    if existing in OF_UNIQUE and unique is None:
        raise InvalidOption(f"existing={existing!r} needs a unique key: set the option unique.")
    if existing == "redrive" and unique is not None:
        raise InvalidOption(
            "existing='redrive' needs an identifier instead of a unique key, because only live "
            "Instances hold a unique key."
        )
    if existing == "debounce" and options.run_after is None:
        raise InvalidOption("existing='debounce' needs run_after, the new due time.")
    if existing != "raise" and unique is None and identifier is None:
        raise InvalidOption(f"existing={existing!r} needs an identifier: give one.")


def identifiers_of(
    task_type: Declaration, count: int, identifiers: Iterable[str | None] | None
) -> list[str | None]:
    """Return a list with the identifier, or None, for each of ``count`` Instances.

    Raises InvalidOption if the identifiers or the unique key do not suit that many Instances.
    """
    identifier, unique = task_type.options.identifier, task_type.options.unique
    if unique is not None and count > 1:
        raise InvalidOption(
            f"using(unique={unique!r}) is for one Instance, not {count}: enqueue them one by one."
        )
    if identifiers is None:
        check_existing(task_type.options, identifier)
        if identifier is not None and count > 1:
            raise InvalidOption(
                f"using(identifier={identifier!r}) names one Instance, not {count}: "
                "pass identifiers=[…] to enqueue_many() instead."
            )
        return [identifier] * count
    names = list(identifiers)
    if len(names) != count:
        raise InvalidOption(
            f"There are {len(names)} identifiers for {count} inputs: give one, or None, for each."
        )
    for name in names:
        if name is not None:
            check_text("identifier", name, empty=False)
        if unique is not None:
            check_existing(task_type.options, name)
    return names


# Making a Submission from the arguments of a call.


def submission_of(
    task_type: Declaration,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Options,
    identifier: str | None,
    limit: int | None,
) -> Submission:
    """Return one call as a Submission, which the store can write.

    ``options`` must have been checked. ``limit`` is the maximum size of the serialized inputs, in
    bytes.
    """
    hooks = options.hooks
    return Submission(
        payload_of(task_type, args, kwargs, limit),
        identifier,
        options.collection,
        options.priority,
        options.run_after,  # type: ignore[arg-type]
        options.start_before,  # type: ignore[arg-type]
        options.created_by,
        HOOKED if hooks else None,
        own_options(
            timeout=as_timedelta(options.timeout),
            max_retries=options.max_retries,
            unique=options.unique,
            hooks=[spec.hook.entry() for spec in hooks] or None,
            carried=middleware.save_context(),
        ),
        options.unique,
        options.existing,
    )


def read_input(item: object) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Return an input for enqueue_many(), a mapping or a tuple, as ``(args, kwargs)``.

    Raises InvalidInputs.
    """
    if isinstance(item, Mapping):
        return (), item
    if isinstance(item, (tuple, list)):
        return tuple(item), {}
    raise InvalidInputs(
        f"enqueue_many() takes mappings of keyword arguments or tuples of arguments, not {item!r}."
    )


def payload_of(
    task_type: Declaration, args: Sequence[Any], kwargs: Mapping[str, Any], limit: int | None = None
) -> codec.Payload:
    """Return the serialized arguments of a call.

    ``limit`` is their maximum size in bytes. Raises InvalidInputs, InvalidType, NotSerializable or
    TooLarge.
    """
    name, format = task_type.identifier, task_type.serializer
    signature, plain = task_type.signatures
    bound = binding.bind(name, signature, args, kwargs, plain)
    if task_type.sensitive:
        _refuse_mask(task_type, bound)
    if task_type.as_called:
        bound = binding.as_called(args, kwargs)
    codec.check_format(format)
    return codec.encode(bound, format=format, limit=limit, what=f"Inputs of {name!r}")


def _refuse_mask(task_type: Declaration, bound: Mapping[str, Any]) -> None:
    """Raise InvalidInputs if a sensitive argument is the mask that ATP displays in its place.

    Otherwise somebody who copies displayed inputs would enqueue the mask as the value.
    """
    name = binding.find_mask(bound, task_type.sensitive)
    if name is not None:
        raise InvalidInputs(
            f"Inputs of {task_type.identifier!r}: {name!r} is sensitive, so ATP displays it as "
            f"{binding.MASK!r}. Give the real value instead.",
            argument=name,
        )

"""Enqueueing one, many, or calls of several Types: bind, check, serialize, admit, write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from django.db import transaction

from .. import middleware, signals
from .. import options as own
from ..conf import settings
from ..exceptions import ATPError, InvalidInputs, InvalidOption
from ..models import HOOKED
from ..options import OF_UNIQUE, Options, check_text
from ..payload import binding, codec
from ..store import get_store
from ..store.values.submissions import Submission
from ..store.values.types import Registration
from ..text import seconds
from .admission import admitted, looks_at
from .base import needs_tables

if TYPE_CHECKING:
    from ..models import Instance
    from ..store.contract import Store
    from .registry import Declaration


# Enqueue one Instance, many Instances of one Type, or calls of several Types.

P = ParamSpec("P")
A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a handler to be enqueued: a declared Type with its options, and the arguments."""

    task_type: Declaration
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@needs_tables
def enqueue(task_type: Declaration[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Instance:
    """Enqueue one Instance; see :meth:`atp.TaskType.enqueue`."""
    store = get_store()
    submission = _submission(store, task_type, args, kwargs)
    made = write(store, [task_type], [submission])
    _tell(made)
    return made[0]


def _tell(instances: Iterable[Instance]) -> None:
    """Send the signal ``enqueued`` for each new Instance."""
    # To look at the list is quicker than has_listeners(), and each enqueue comes here.
    if signals.enqueued.receivers:
        for instance in instances:
            if instance.is_new:
                signals.enqueued.send_robust(sender=type(instance), instance=instance)


def _submission(
    store: Store, task_type: Declaration, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Submission:
    options = task_type.options.checked(store.now)
    check_existing(options, options.identifier)
    most = settings.MAX_INPUTS_SIZE
    return submission_of(task_type, args, kwargs, options, options.identifier, most)


@needs_tables
def enqueue_many(
    task_type: Declaration,
    inputs: Iterable[Mapping[str, Any] | Sequence[Any]],
    *,
    identifiers: Iterable[str | None] | None = None,
) -> Sequence[Instance]:
    """Enqueue many Instances, all or none; see :meth:`atp.TaskType.enqueue_many`."""
    given = _each_row(arguments_of, inputs)
    names = identifiers_of(task_type, len(given), identifiers)
    store = get_store()
    # The options are checked once, however many Instances there are.
    options = task_type.options.checked(store.now)
    most = settings.MAX_INPUTS_SIZE

    def submission(row: tuple[Any, str | None]) -> Submission:
        (args, kwargs), name = row
        return submission_of(task_type, args, kwargs, options, name, most)

    submissions = _each_row(submission, zip(given, names, strict=True))
    made = write(store, [task_type], submissions)
    _tell(made)
    return made


def _each_row(read: Callable[[A], B], rows: Iterable[A]) -> list[B]:
    """Return ``read(row)`` for each row. An ATPError of a row is raised with the row's number."""
    made = []
    for number, row in enumerate(rows):
        try:
            made.append(read(row))
        except ATPError as error:
            error.call = number
            error.args = (f"Row {number}, counted from 0: {error}", *error.args[1:])
            raise
    return made


@needs_tables
def enqueue_calls(calls: Iterable[Call]) -> list[Instance]:
    """Enqueue calls of any Types, each with options of its own, all or none.

    Returns the Instances in the same order. Raises what :meth:`atp.TaskType.enqueue` raises. An
    error about a single call has the position of that call, from 0, as ``error.call``.
    """
    prepared = []
    for number, call in enumerate(calls):
        try:
            prepared.append(prepare(call))
        except ATPError as error:
            error.call = number
            raise
    return enqueue_prepared(prepared)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call that is checked and serialized, and not enqueued yet."""

    task_type: Declaration
    submission: Submission


def prepare(call: Call) -> Prepared:
    """Check and serialize a call. Raises what :meth:`atp.TaskType.enqueue` raises, but QueueFull.

    An identifier that is taken is found only by the enqueue.
    """
    made = _submission(get_store(), call.task_type, call.args, call.kwargs)
    return Prepared(call.task_type, made)


def enqueue_prepared(prepared: Sequence[Prepared]) -> list[Instance]:
    """Enqueue calls that :func:`prepare` has checked, all or none; return them in order."""
    of_type = defaultdict(list)
    for number, each in enumerate(prepared):
        numbered = (number, each.task_type, each.submission)
        of_type[each.task_type.identifier].append(numbered)
    store = get_store()
    enqueued: dict[int, Instance] = {}
    # For one Type no transaction is needed here: a verb of the store is one already.
    together = transaction.atomic(using=settings.DATABASE) if len(of_type) > 1 else nullcontext()
    with together:
        # In one order for all, as each Type may take a lock.
        for _, numbered in sorted(of_type.items()):
            numbers, task_types, submissions = zip(*numbered, strict=True)
            instances = write(store, task_types, list(submissions))
            enqueued.update(zip(numbers, instances, strict=True))
    made = [enqueued[number] for number in sorted(enqueued)]
    _tell(made)
    return made


# Write Submissions of one Type, if there is room for them.


def write(
    store: Store, task_types: Sequence[Declaration], submissions: Sequence[Submission]
) -> Sequence[Instance]:
    """Enqueue Submissions of one Type, all or none.

    ``task_types`` is the Type with the options of each call, or a single one for all calls. Raises
    QueueFull, and what the store raises.
    """
    first, *others = task_types
    registration = first.registration()
    if others:
        registration = Registration.of_all(each.registration() for each in task_types)
    if not submissions or not looks_at(store, first):
        return store.enqueue(registration, submissions)
    options = [each.options for each in task_types]
    if not others:
        options *= len(submissions)
    with admitted(store, first, submissions, options) as let_in:
        return store.enqueue(registration, let_in)


# The identifiers of an enqueue, and what happens if one is taken.


def check_existing(options: Options, identifier: str | None) -> None:
    """Check that ``existing`` fits the other options of an enqueue. Raises InvalidOption.

    ``existing`` says what happens if an Instance has the identifier or the unique key already.
    """
    existing, unique = options.existing, options.unique
    if unique is not None and identifier is not None:
        raise InvalidOption(
            f"unique={unique!r} and an identifier both say what is there already: give one."
        )
    if existing in OF_UNIQUE and unique is None:
        raise InvalidOption(f"existing={existing!r} is about what has the unique key: give unique.")
    if existing == "redrive" and unique is not None:
        raise InvalidOption("existing='redrive' is about an identifier: what has a key is live.")
    if existing == "debounce" and options.run_after is None:
        raise InvalidOption("existing='debounce' moves the due time: give run_after.")
    if existing != "raise" and unique is None and identifier is None:
        raise InvalidOption(
            f"existing={existing!r} says what to do if the identifier is taken: give one."
        )


def identifiers_of(
    task_type: Declaration, count: int, identifiers: Iterable[str | None] | None
) -> list[str | None]:
    """Return the identifier of each of ``count`` Instances, or None. Raises InvalidOption."""
    named, unique = task_type.options.identifier, task_type.options.unique
    if unique is not None and count > 1:
        raise InvalidOption(
            f"using(unique={unique!r}) is for one Instance, not {count}: enqueue each by itself."
        )
    if identifiers is None:
        check_existing(task_type.options, named)
        if named is not None and count > 1:
            raise InvalidOption(
                f"using(identifier={named!r}) names one Instance, not {count}: "
                "give enqueue_many() its identifiers=[…]."
            )
        return [named] * count
    names = list(identifiers)
    if len(names) != count:
        raise InvalidOption(f"{len(names)} identifiers for {count} inputs.")
    for name in names:
        if name is not None:
            check_text("identifier", name, empty=False)
        if unique is not None:
            check_existing(task_type.options, name)
    return names


# Making a Submission of the arguments of a call.


def submission_of(
    task_type: Declaration,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Options,
    identifier: str | None,
    limit: int | None,
) -> Submission:
    """Return the Submission of one call, for the store; ``options`` have been checked.

    ``limit`` is the largest size of serialized inputs, in bytes.
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
        own.own_options(
            timeout=seconds(options.timeout),
            max_retries=options.max_retries,
            unique=options.unique,
            hooks=[spec.hook.entry() for spec in hooks] or None,
            carried=middleware.saved_context(),
        ),
        options.unique,
        options.existing,
    )


def arguments_of(item: object) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Return one item of enqueue_many() as ``(args, kwargs)``. Raises InvalidInputs."""
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
    """Return the serialized arguments of a call. Raises what :meth:`atp.TaskType.enqueue` does."""
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
    """Raise InvalidInputs for a mask: somebody gives inputs again that they have been shown."""
    name = binding.mask_given(bound, task_type.sensitive)
    if name is not None:
        raise InvalidInputs(
            f"Inputs of {task_type.identifier!r}: {name!r} is sensitive, and {binding.MASK!r} is "
            "only shown for it: give its value.",
            argument=name,
        )

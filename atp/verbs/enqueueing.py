"""Enqueue one Instance, many Instances of one Type, or calls of several Types."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from django.db import transaction

from .. import signals
from ..conf import settings
from ..exceptions import ATPError
from ..store import get_store
from ..store.values import Submission
from .migrated import needs_tables
from .overload.writing import write
from .submissions.identifiers import check_existing, identifiers_of
from .submissions.submission import arguments_of, submission_of

if TYPE_CHECKING:
    from ..authoring.task_type import TaskType
    from ..models import Instance
    from ..store.contract import Store

P = ParamSpec("P")
A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a handler to be enqueued: a declared Type with its options, and the arguments."""

    task_type: TaskType
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@needs_tables
def enqueue(task_type: TaskType[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Instance:
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
    store: Store, task_type: TaskType, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Submission:
    options = task_type.options.checked(store.now)
    check_existing(options, options.identifier)
    most = settings.MAX_INPUTS_SIZE
    return submission_of(task_type, args, kwargs, options, options.identifier, most)


@needs_tables
def enqueue_many(
    task_type: TaskType,
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

    task_type: TaskType
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

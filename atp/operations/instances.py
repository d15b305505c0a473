"""Operations on Instances: find, change, redrive, cancel, pause, resume, release, delete, purge,
count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db.models import QuerySet

from .. import text
from ..commands import CANCEL, PAUSE, RELEASE, RESUME
from ..conf import settings
from ..exceptions import (
    LONGEST_DELAY,
    IllegalTransition,
    InvalidOption,
    NotPausable,
    UnknownInstance,
    WaitTimeout,
)
from ..graphs.models import REDRIVABLE
from ..models import Inputs, Instance, Node, Response, Step, Task, Type, families
from ..options import Options, instant
from ..states import Event, State
from ..store import get_store
from ..store.values.changes import Changes
from ..store.values.moves import Move
from ..text import did_you_mean
from .base import check_by, needs_tables
from .registry import get_type, registry

if TYPE_CHECKING:
    from .registry import TypeLike


# The verbs of Instances: find, redrive, release, cancel, pause, resume.

# An Instance, or its uuid.
InstanceLike = Instance | UUID | str


@needs_tables
def get(
    uuid: UUID | str | None = None, *, type: TypeLike | None = None, identifier: str | None = None
) -> Instance:
    """Return the Instance with this uuid, or this Type and identifier. Raises UnknownInstance."""
    rows = Instance.objects.using(settings.DATABASE).select_related("type")
    try:
        if uuid is not None:
            return rows.get(uuid=uuid if isinstance(uuid, UUID) else UUID(str(uuid)))
        if identifier is not None:
            return _of_type(rows, str(type), identifier)
    except (Instance.DoesNotExist, ValueError):
        pass
    if uuid is None and identifier is None:
        raise UnknownInstance("An Instance is found by its uuid, or by type and identifier.")
    named = uuid if uuid is not None else f"of {type} with identifier {identifier!r}"
    hint = _hint(str(type)) if uuid is None else ""
    raise UnknownInstance(f"There is no Instance {named}.{hint}")


async def aget(
    uuid: UUID | str | None = None, *, type: TypeLike | None = None, identifier: str | None = None
) -> Instance:
    """Return an Instance as :func:`get` does, for coroutines."""
    return await sync_to_async(get)(uuid, type=type, identifier=identifier)


def _hint(type: str) -> str:
    """Return a hint with the closest identifier if there is no such Type, otherwise ""."""
    known = list(Type.objects.using(settings.DATABASE).values_list("identifier", flat=True))
    if type in known:
        return ""
    return f" No Type {type!r} is registered.{did_you_mean(type, known)}"


def meant(instances: Iterable[object], by: str = "") -> list[Instance]:
    """Return the given Instances as a list; each is given as itself or by its uuid.

    Writes nothing. Raises UnknownInstance, or InvalidOption if the log does not accept ``by``.
    """
    check_by(by)
    return [_meant(given) for given in instances]


def _meant(given: object) -> Instance:
    if isinstance(given, Instance):
        return given
    if isinstance(given, (str, UUID)):
        return get(given)
    raise UnknownInstance(f"There is no Instance {given!r}: give an Instance or its uuid.")


@needs_tables
def inputs(instance: InstanceLike) -> Inputs | None:
    """Return the Inputs of an Instance, None if they are removed. Raises UnknownInstance."""
    return Inputs.objects.using(settings.DATABASE).filter(pk=_meant(instance).pk).first()


@needs_tables
def response(instance: InstanceLike) -> Response | None:
    """Return the Response of an Instance, None if it has none (RFC 14). Raises UnknownInstance."""
    return Response.objects.using(settings.DATABASE).filter(instance=_meant(instance)).first()


@needs_tables
def steps(instance: InstanceLike) -> QuerySet[Step]:
    """Return the steps of an Instance, in the order in which they were first begun."""
    return Step.objects.using(settings.DATABASE).filter(instance=_meant(instance)).order_by("id")


@needs_tables
def task(instance: InstanceLike) -> Task | None:
    """Return the Task of an Instance, with its daemon; None if the Instance has ended."""
    tasks = Task.objects.using(settings.DATABASE).select_related("daemon")
    return tasks.filter(pk=_meant(instance).pk).first()


# Instances written or removed in one statement.
CHUNK = 1000
_BEING_CANCELLED = "has been asked to be cancelled already"


@needs_tables
def redrive(*instances: InstanceLike, by: str = "") -> None:
    """Send FAILED Instances back to the queue, with their counters of retries and losses at zero.

    Nodes of a graph wait for each other again. Raises IllegalTransition if an Instance is not
    FAILED, or waits for a FAILED node that is not redriven with it; the others are redriven.
    """
    instances = meant(instances, by)
    changes = [Move(event=Event.REDRIVE, instance=i.pk, who=by) for i in instances]
    refused = get_store().record(changes)
    refresh(instances)
    for refusal in refused:
        instance = next(i for i in instances if i.pk == refusal.instance)
        is_failed = instance.state == State.FAILED
        why = _why_not_redriven(instance) if is_failed else f"not {State.FAILED}"
        raise IllegalTransition(
            f"{instance.uuid} cannot be redriven: it is {text.state(instance)}, {why}.",
            event=Event.REDRIVE,
            state=State(instance.state),
        )


def _of_type(rows: QuerySet[Instance], type: str, identifier: str) -> Instance:
    """Return the Instance of a Type; also one that was enqueued under another name of the Type.

    Raises Instance.DoesNotExist.
    """
    try:
        return rows.get(type__identifier=type, identifier=identifier)
    except Instance.DoesNotExist:
        types = Type.objects.using(settings.DATABASE)
        own = types.filter(identifier=type).values_list("pk", flat=True).first()
        family = families(types).get(own or 0, frozenset())
        found = rows.filter(type__in=family, identifier=identifier).order_by("-pk").first()
        if found is None:
            raise
        return found


def _why_not_redriven(instance: Instance) -> str:
    own = instance.type_id
    family = families(Type.objects.using(settings.DATABASE)).get(own, {own})
    tasks = Task.objects.using(settings.DATABASE).filter(type__in=family)
    for other in tasks.filter(unique_key=instance.unique or "").select_related("instance"):
        return f"and its unique key is taken by {other.instance.uuid}, which is live"
    if Node.objects.using(settings.DATABASE).filter(pk=instance.pk).exclude(REDRIVABLE).exists():
        return "and what its graph had done has been undone"
    return "and so is a node that it waits for: redrive that first, or both together"


@needs_tables
def release(instance: InstanceLike, by: str = "") -> bool:
    """Send a claimed Instance back to the queue (RFC 14).

    The holder is asked to stop the attempt and hand the Instance back; no budget is charged. A
    waiting Instance stays as it is. Returns whether a holder was asked. Raises IllegalTransition
    if the Instance is terminal, or has been asked to be cancelled.
    """
    [instance] = meant([instance], by)
    asked = get_store().request(instance.pk, RELEASE, who=by)
    refresh([instance])
    is_cancelled = not asked and _asked_of(instance) == CANCEL
    if not asked and (instance.is_terminal or is_cancelled):
        more = f", and {_BEING_CANCELLED}" if is_cancelled else ""
        raise IllegalTransition(
            f"{instance.uuid} cannot be released: it is {text.state(instance)}{more}.",
            event=Event.RELEASE,
            state=State(instance.state),
        )
    return asked


@needs_tables
def cancel(*instances: InstanceLike, by: str = "") -> list[Instance]:
    """End live Instances as FAILED, with the reason CANCELLED.

    Waiting Instances become FAILED at once. The holder of a claimed one is asked: it interrupts
    the handler, and kills it after ``cancel_grace``, unless it finishes before. Returns the
    Instances whose holder was asked: they have not ended yet. Raises IllegalTransition if one is
    terminal or has been asked already; the others are cancelled.
    """
    instances = meant(instances, by)
    keys = [instance.pk for instance in instances]
    done = [get_store().cancel(chunk, who=by) for chunk in chunks(keys)]
    failed, asked, before = (
        {key for each in done for key in getattr(each, name)}
        for name in ("failed", "asked", "before")
    )
    refresh(instances)
    for instance in instances:
        if instance.pk not in failed | asked:
            more = f", and {_BEING_CANCELLED}" if instance.pk in before else ""
            raise IllegalTransition(
                f"{instance.uuid} cannot be cancelled: it is {text.state(instance)}{more}.",
                event=Event.FAIL,
                state=State(instance.state),
            )
    return [instance for instance in instances if instance.pk in asked]


@needs_tables
def pause(instance: InstanceLike, by: str = "") -> None:
    """Pause a RUNNING Instance (RFC 14).

    Its daemon is asked. The handler stops at its next ``context.check()`` or ``progress()``
    outside a transaction; if its Type is stoppable, it stops wherever it is. Raises
    IllegalTransition if the Instance is not running, or has been asked already; NotPausable if
    this process declares its Type as transactional.
    """
    [instance] = meant([instance], by)
    type = instance.type.identifier
    if registry.is_transactional(type):
        raise NotPausable(
            f"{instance.uuid} cannot be paused: {type} is transactional, so its handler is in a "
            "transaction from its beginning to its end, and a pause would keep that open.",
            event=Event.PAUSE,
            state=State(instance.state),
        )
    _ask(instance, PAUSE, Event.PAUSE, "paused", by)


@needs_tables
def resume(instance: InstanceLike, by: str = "") -> None:
    """Let a PAUSED Instance go on, as soon as a worker is free.

    If it has not paused yet, the ask to pause is withdrawn. Raises IllegalTransition if it is
    neither paused nor about to be, or has been asked to resume already.
    """
    [instance] = meant([instance], by)
    _ask(instance, RESUME, Event.RESUME, "resumed", by)


def _ask(instance: Instance, request: str, event: Event, done: str, by: str) -> None:
    asked = get_store().request(instance.pk, request, who=by)
    refresh([instance])
    if asked:
        return
    words = {CANCEL: _BEING_CANCELLED, request: f"has been asked to be {done} already"}
    before = words.get(_asked_of(instance))
    more = f", and {before}" if before else ""
    raise IllegalTransition(
        f"{instance.uuid} cannot be {done}: it is {text.state(instance)}{more}.",
        event=event,
        state=State(instance.state),
    )


def _asked_of(instance: Instance) -> str:
    """Return the pending request to the holder; empty if none is, or the Instance has ended."""
    tasks = Task.objects.using(settings.DATABASE).filter(pk=instance.pk)
    return tasks.values_list("request", flat=True).first() or ""


def chunks(keys: Sequence[int]) -> list[Sequence[int]]:
    return [keys[start : start + CHUNK] for start in range(0, len(keys), CHUNK)]


def refresh(instances: Iterable[Instance]) -> None:
    """Reload Instances from the database. Raises UnknownInstance if one has been removed."""
    for gone in Instance.objects.using(settings.DATABASE).reload(instances):
        raise UnknownInstance(f"There is no Instance {gone.uuid} any more.")


# The verb that changes waiting Instances; callers use it through :mod:`atp.queue`.

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
                f"{instance.uuid} cannot be changed: it is {text.state(instance)}, "
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


# Count live and waiting Instances.


@needs_tables
def size(type: TypeLike | None = None) -> int:
    """Return the number of live Instances, waiting or claimed. Raises UnknownType."""
    tasks = Task.objects.using(settings.DATABASE)
    if not type:
        return tasks.count()
    return tasks.filter(type__identifier=str(type)).count() or _none_of(type)


def _none_of(type: TypeLike) -> int:
    """Return 0 for an existing Type. Raises UnknownType, which suggests the closest identifier."""
    if str(type) not in registry:
        get_type(str(type))
    return 0


@needs_tables
def waiting(
    type: TypeLike | None = None, collection: str | None = None, *, most: int | None = None
) -> int:
    """Return the number of waiting Instances of a Type, of a lane, or of all Types.

    Counting stops at ``most``. Raises UnknownType.
    """
    tasks = Task.objects.using(settings.DATABASE).waiting()
    if type is not None:
        tasks = tasks.filter(type__identifier=str(type))
    if collection is not None:
        tasks = tasks.filter(collection=collection)
    return tasks[:most].count() or (0 if type is None else _none_of(type))


# The verbs that remove Instances: all whose retention is over, or given ones.


@needs_tables
def purge(type: str | None = None, by: str = "") -> int:
    """Remove terminal Instances whose Type's retention is over; return their number."""
    check_by(by)
    removed = 0
    while count := get_store().purge(type=type, limit=CHUNK, who=by):
        removed += count
    return removed


@needs_tables
def delete(*instances: InstanceLike, by: str = "", cancel: bool = False, wait: float = 0.0) -> int:
    """Remove terminal Instances, with inputs, response, files and log (RFC 14).

    Returns their number. The log of their Type records the removal. Raises IllegalTransition,
    with nothing removed, if one is live or is a node of a graph. With ``cancel``, live Instances
    are cancelled first. Waiting ones are then removed at once; a claimed one is removed only if it
    ends within ``wait`` seconds, and otherwise stays, cancelled, to be removed later.
    """
    instances = meant(instances, by)
    refresh(instances)
    for chunk in chunks([instance.pk for instance in instances]):
        _refuse_nodes(chunk)
    if cancel:
        _end([instance for instance in instances if not instance.is_terminal], by, wait)
        instances = [instance for instance in instances if instance.is_terminal]
    for instance in instances:
        if not instance.is_terminal:
            raise IllegalTransition(
                f"{instance.uuid} cannot be removed: it is {text.state(instance)}.",
                state=State(instance.state),
            )
    keys = [instance.pk for instance in instances]
    store = get_store()
    return sum(store.purge(instances=chunk, limit=CHUNK, who=by) for chunk in chunks(keys))


def _refuse_nodes(keys: Sequence[int]) -> None:
    """Raise IllegalTransition if one is a node: other nodes of its graph may need its result."""
    nodes = Node.objects.using(settings.DATABASE).select_related("instance", "graph")
    node = nodes.filter(pk__in=keys, graph__isnull=False).first()
    if node is not None:
        raise IllegalTransition(
            f"{node.instance} cannot be removed: it is {node} of the graph {node.graph}, which is "
            "removed as a whole when no Type of its nodes keeps them any longer.",
            state=State(node.instance.state),
        )


def _end(instances: list[Instance], by: str, wait: float) -> None:
    """Cancel live Instances, and wait up to ``wait`` seconds for the claimed ones to end."""
    if not instances:
        return
    try:
        cancel(*instances, by=by)
    except IllegalTransition:
        pass  # that one has ended by itself, or is about to be
    until = time.monotonic() + wait
    for instance in instances:
        if wait and not instance.is_terminal:
            with suppress(WaitTimeout):
                instance.wait(max(0.0, until - time.monotonic()))
    refresh(instances)

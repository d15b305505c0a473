"""Operations on Instances: find, change, redrive, cancel, pause, resume, release, delete, count."""

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
from ..models import Inputs, Instance, Node, Response, Step, Task, Type, group_renamed_types
from ..options import Options, resolve_time
from ..states import Event, State
from ..store import get_store
from ..store.values.changes import Changes
from ..store.values.moves import Move
from ..text import did_you_mean
from .base import check_actor, needs_tables
from .registry import get_type, registry

if TYPE_CHECKING:
    from .registry import TypeLike

# An Instance, or its uuid.
InstanceLike = Instance | UUID | str

# The maximum number of Instances that one statement writes or removes.
CHUNK = 1000
LONGEST = timedelta(seconds=LONGEST_DELAY)
_BEING_CANCELLED = "has been asked to be cancelled already"


# Finding Instances.


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
            return _find_in_family(rows, str(type), identifier)
    except (Instance.DoesNotExist, ValueError):
        pass
    if uuid is None and identifier is None:
        raise UnknownInstance("To find an Instance, give its uuid, or type and identifier.")
    named = uuid if uuid is not None else f"of {type} with identifier {identifier!r}"
    hint = _suggest_type(str(type)) if uuid is None else ""
    raise UnknownInstance(f"There is no Instance {named}.{hint}")


async def aget(
    uuid: UUID | str | None = None, *, type: TypeLike | None = None, identifier: str | None = None
) -> Instance:
    """Return an Instance as :func:`get` does; for coroutines."""
    return await sync_to_async(get)(uuid, type=type, identifier=identifier)


def _suggest_type(type: str) -> str:
    """Return a hint with the closest identifier if there is no such Type, otherwise ""."""
    known = list(Type.objects.using(settings.DATABASE).values_list("identifier", flat=True))
    if type in known:
        return ""
    return f" No Type {type!r} is registered.{did_you_mean(type, known)}"


def find_instances(instances: Iterable[object], by: str = "") -> list[Instance]:
    """Return the Instances as a list; an item of ``instances`` may be the uuid of one.

    Raises UnknownInstance, or InvalidOption if ``by`` is not valid text for the log.
    """
    check_actor(by)
    return [_find_instance(each) for each in instances]


def _find_instance(instance: object) -> Instance:
    if isinstance(instance, Instance):
        return instance
    if isinstance(instance, (str, UUID)):
        return get(instance)
    raise UnknownInstance(f"There is no Instance {instance!r}: give an Instance or its uuid.")


@needs_tables
def inputs(instance: InstanceLike) -> Inputs | None:
    """Return the Inputs of an Instance, None after their removal. Raises UnknownInstance."""
    return Inputs.objects.using(settings.DATABASE).filter(pk=_find_instance(instance).pk).first()


@needs_tables
def response(instance: InstanceLike) -> Response | None:
    """Return the Response of an Instance, None if it has none (RFC 14). Raises UnknownInstance."""
    rows = Response.objects.using(settings.DATABASE)
    return rows.filter(instance=_find_instance(instance)).first()


@needs_tables
def steps(instance: InstanceLike) -> QuerySet[Step]:
    """Return the steps of an Instance, in the order in which they first began."""
    rows = Step.objects.using(settings.DATABASE)
    return rows.filter(instance=_find_instance(instance)).order_by("id")


@needs_tables
def task(instance: InstanceLike) -> Task | None:
    """Return the Task of an Instance, with its daemon; None if the Instance has ended."""
    tasks = Task.objects.using(settings.DATABASE).select_related("daemon")
    return tasks.filter(pk=_find_instance(instance).pk).first()


# Redriving Instances, and sending commands to their attempts.


@needs_tables
def redrive(*instances: InstanceLike, by: str = "") -> None:
    """Send FAILED Instances back to the queue and reset their counts of retries and restarts.

    Nodes of a graph wait for each other again. Raises IllegalTransition if an Instance is not
    FAILED, or waits for a FAILED node that is not redriven with it; the others are redriven.
    """
    instances = find_instances(instances, by)
    changes = [Move(event=Event.REDRIVE, instance=i.pk, who=by) for i in instances]
    refused = get_store().record(changes)
    refresh(instances)
    for refusal in refused:
        instance = next(i for i in instances if i.pk == refusal.instance)
        is_failed = instance.state == State.FAILED
        why = _why_not_redriven(instance) if is_failed else f"not {State.FAILED}"
        raise IllegalTransition(
            f"{instance.uuid} cannot be redriven: it is {text.describe_state(instance)}, {why}.",
            event=Event.REDRIVE,
            state=State(instance.state),
        )


def _find_in_family(rows: QuerySet[Instance], type: str, identifier: str) -> Instance:
    """Return the Instance with this Type and identifier. Raises Instance.DoesNotExist.

    It may have been enqueued under another name of the Type.
    """
    try:
        return rows.get(type__identifier=type, identifier=identifier)
    except Instance.DoesNotExist:
        types = Type.objects.using(settings.DATABASE)
        key = types.filter(identifier=type).values_list("pk", flat=True).first()
        family = group_renamed_types(types).get(key or 0, frozenset())
        found = rows.filter(type__in=family, identifier=identifier).order_by("-pk").first()
        if found is None:
            raise
        return found


def _why_not_redriven(instance: Instance) -> str:
    """Return the reason for which a FAILED Instance was not redriven, as part of a sentence."""
    key = instance.type_id
    family = group_renamed_types(Type.objects.using(settings.DATABASE)).get(key, {key})
    tasks = Task.objects.using(settings.DATABASE).filter(type__in=family)
    for other in tasks.filter(unique_key=instance.unique or "").select_related("instance"):
        return f"and its unique key is taken by {other.instance.uuid}, which is live"
    if Node.objects.using(settings.DATABASE).filter(pk=instance.pk).exclude(REDRIVABLE).exists():
        return "and its graph has been undone"
    return "and so is a node that it waits for: redrive that first, or both together"


@needs_tables
def release(instance: InstanceLike, by: str = "") -> bool:
    """Send a claimed Instance back to the queue (RFC 14).

    The command makes its worker stop the attempt and hand the Instance back. This spends no retry
    and no restart. A waiting Instance stays as it is. Returns True if the command was sent. Raises
    IllegalTransition if the Instance is terminal, or is being cancelled.
    """
    [instance] = find_instances([instance], by)
    is_sent = get_store().request(instance.pk, RELEASE, who=by)
    refresh([instance])
    is_cancelled = not is_sent and _pending_command(instance) == CANCEL
    if not is_sent and (instance.is_terminal or is_cancelled):
        more = f", and {_BEING_CANCELLED}" if is_cancelled else ""
        raise IllegalTransition(
            f"{instance.uuid} cannot be released: it is {text.describe_state(instance)}{more}.",
            event=Event.RELEASE,
            state=State(instance.state),
        )
    return is_sent


@needs_tables
def cancel(*instances: InstanceLike, by: str = "") -> list[Instance]:
    """End live Instances as FAILED, with the reason CANCELLED.

    Waiting Instances become FAILED at once. The attempt of a claimed one gets a command: its
    worker interrupts the handler, and is killed after ``cancel_grace`` unless the handler ends
    before. Returns the Instances that got this command: they have not ended yet. Raises
    IllegalTransition if one is terminal or is being cancelled already; the others are cancelled.
    """
    instances = find_instances(instances, by)
    keys = [instance.pk for instance in instances]
    results = [get_store().cancel(chunk, who=by) for chunk in chunks(keys)]
    failed, asked, before = (
        {key for each in results for key in getattr(each, name)}
        for name in ("failed", "asked", "before")
    )
    refresh(instances)
    for instance in instances:
        if instance.pk not in failed | asked:
            more = f", and {_BEING_CANCELLED}" if instance.pk in before else ""
            raise IllegalTransition(
                f"{instance.uuid} cannot be cancelled: it is {text.describe_state(instance)}"
                f"{more}.",
                event=Event.FAIL,
                state=State(instance.state),
            )
    return [instance for instance in instances if instance.pk in asked]


@needs_tables
def pause(instance: InstanceLike, by: str = "") -> None:
    """Pause a RUNNING Instance (RFC 14).

    This sends a command to its attempt. The handler pauses at its next ``context.check()`` or
    ``progress()`` outside a transaction; if its Type is stoppable, it pauses wherever it is.
    Raises IllegalTransition if the Instance is not running, or if the command was sent before;
    NotPausable if this process declares its Type as transactional.
    """
    [instance] = find_instances([instance], by)
    type = instance.type.identifier
    if registry.is_transactional(type):
        raise NotPausable(
            f"{instance.uuid} cannot be paused: {type} is transactional, so its handler is in a "
            "transaction from its beginning to its end, and a pause would keep that open.",
            event=Event.PAUSE,
            state=State(instance.state),
        )
    _send_command(instance, PAUSE, Event.PAUSE, "paused", by)


@needs_tables
def resume(instance: InstanceLike, by: str = "") -> None:
    """Let a PAUSED Instance continue as soon as a worker is free.

    If it has not paused yet, this withdraws the command to pause. Raises IllegalTransition if it
    is neither paused nor about to pause, or if the command to resume was sent before.
    """
    [instance] = find_instances([instance], by)
    _send_command(instance, RESUME, Event.RESUME, "resumed", by)


def _send_command(instance: Instance, command: str, event: Event, done: str, by: str) -> None:
    """Send a command to an attempt. Raises IllegalTransition, with ``done`` in its message."""
    is_sent = get_store().request(instance.pk, command, who=by)
    refresh([instance])
    if is_sent:
        return
    words = {CANCEL: _BEING_CANCELLED, command: f"has been asked to be {done} already"}
    before = words.get(_pending_command(instance))
    more = f", and {before}" if before else ""
    raise IllegalTransition(
        f"{instance.uuid} cannot be {done}: it is {text.describe_state(instance)}{more}.",
        event=event,
        state=State(instance.state),
    )


def _pending_command(instance: Instance) -> str:
    """Return the command that the attempt has not obeyed yet; empty if there is none."""
    tasks = Task.objects.using(settings.DATABASE).filter(pk=instance.pk)
    return tasks.values_list("request", flat=True).first() or ""


def chunks(keys: Sequence[int]) -> list[Sequence[int]]:
    return [keys[start : start + CHUNK] for start in range(0, len(keys), CHUNK)]


def refresh(instances: Iterable[Instance]) -> None:
    """Reload Instances from the database. Raises UnknownInstance if one has been removed."""
    for removed in Instance.objects.using(settings.DATABASE).reload(instances):
        raise UnknownInstance(f"There is no Instance {removed.uuid} any more.")


# Changing waiting Instances.


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

    Each of ``instances`` is an Instance or its uuid. ``due`` is a datetime, or a timedelta from
    now; ``timedelta(0)`` is "run now". ``postpone`` is a timedelta to add to the due time, or to
    now if the due time has passed. Options that are left out stay as they are, and so does
    ``start_before``. Raises InvalidOption before it changes anything. Raises IllegalTransition if
    an Instance does not wait, after it has changed the others.
    """
    instances = find_instances(instances, by)
    store = get_store()
    changes = check_changes(
        priority=priority, due=due, postpone=postpone, collection=collection, now=store.now
    )
    changed = store.change([instance.pk for instance in instances], changes, who=by)
    refresh(instances)
    for instance in instances:
        if instance.pk not in changed:
            raise IllegalTransition(
                f"{instance.uuid} cannot be changed: it is {text.describe_state(instance)}, "
                f"not {State.ACCEPTED}.",
                state=State(instance.state),
            )


def check_changes(
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
    plain: dict[str, Any] = {"priority": priority, "collection": collection}
    plain = {name: value for name, value in plain.items() if value is not None}
    if not plain and due is None and postpone is None:
        raise InvalidOption(
            f"Nothing to change: give priority, {due_name}, postpone or collection."
        )
    if due is not None and postpone is not None:
        raise InvalidOption(f"Give either {due_name} or postpone: both set the due time.")
    Options(**plain)
    if isinstance(due, timedelta) and due < timedelta():
        raise InvalidOption(f"{due_name}={due!r}: must be 0 or more from now.")
    if due is not None:
        moment = resolve_time(due_name, due, now)
        # A timedelta counts from the time of the write, so it stays a timedelta.
        due = due if isinstance(due, timedelta) else moment
    if postpone is not None and not (
        isinstance(postpone, timedelta) and timedelta() <= postpone <= LONGEST
    ):
        raise InvalidOption(
            f"postpone={postpone!r}: must be a timedelta from 0 to {LONGEST.days} days."
        )
    return Changes(due=due, postpone=postpone, **plain)


# Counting live and waiting Instances.


@needs_tables
def size(type: TypeLike | None = None) -> int:
    """Return the number of live Instances, waiting or claimed. Raises UnknownType."""
    tasks = Task.objects.using(settings.DATABASE)
    if not type:
        return tasks.count()
    return tasks.filter(type__identifier=str(type)).count() or _zero_for(type)


def _zero_for(type: TypeLike) -> int:
    """Return 0 for an existing Type. Raises UnknownType, which suggests the closest identifier."""
    if str(type) not in registry:
        get_type(str(type))
    return 0


@needs_tables
def waiting(
    type: TypeLike | None = None, collection: str | None = None, *, most: int | None = None
) -> int:
    """Return the number of waiting Instances: of all Types, of one Type, or of one lane.

    Counting stops at ``most``. Raises UnknownType.
    """
    tasks = Task.objects.using(settings.DATABASE).waiting()
    if type is not None:
        tasks = tasks.filter(type__identifier=str(type))
    if collection is not None:
        tasks = tasks.filter(collection=collection)
    return tasks[:most].count() or (0 if type is None else _zero_for(type))


# Removing Instances: all whose retention is over, or certain ones.


@needs_tables
def purge(type: str | None = None, by: str = "") -> int:
    """Remove terminal Instances whose retention is over; return their number."""
    check_actor(by)
    removed = 0
    while count := get_store().purge(type=type, limit=CHUNK, who=by):
        removed += count
    return removed


@needs_tables
def delete(*instances: InstanceLike, by: str = "", cancel: bool = False, wait: float = 0.0) -> int:
    """Remove terminal Instances, with inputs, response, files and log (RFC 14).

    Returns their number. The log of their Type records the removal. If one is live or is a node of
    a graph, this removes nothing and raises IllegalTransition. With ``cancel``, it cancels live
    Instances first. Then it removes waiting ones at once, and a claimed one if it ends within
    ``wait`` seconds; otherwise that one stays, cancelled.
    """
    instances = find_instances(instances, by)
    refresh(instances)
    for chunk in chunks([instance.pk for instance in instances]):
        _refuse_nodes(chunk)
    if cancel:
        _cancel_and_wait([instance for instance in instances if not instance.is_terminal], by, wait)
        instances = [instance for instance in instances if instance.is_terminal]
    for instance in instances:
        if not instance.is_terminal:
            raise IllegalTransition(
                f"{instance.uuid} cannot be removed: it is {text.describe_state(instance)}.",
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


def _cancel_and_wait(instances: list[Instance], by: str, wait: float) -> None:
    """Cancel live Instances, and wait up to ``wait`` seconds for the claimed ones to end."""
    if not instances:
        return
    try:
        cancel(*instances, by=by)
    except IllegalTransition:
        pass  # that one has ended in the meantime, or is being cancelled already
    until = time.monotonic() + wait
    for instance in instances:
        if wait and not instance.is_terminal:
            with suppress(WaitTimeout):
                instance.wait(max(0.0, until - time.monotonic()))
    refresh(instances)

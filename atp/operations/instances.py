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
from ..commands import CANCEL, PAUSE, RELEASE, RESUME, STACK, split_request
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
from ..placement import EXECUTOR
from ..states import Event, State
from ..store import get_store
from ..store.facts import Changes
from ..store.values import Move
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
_BEING_CANCELLED = "is being cancelled already"


# Finding Instances.


@needs_tables
def get(
    uuid: UUID | str | None = None, *, type: TypeLike | None = None, identifier: str | None = None
) -> Instance:
    """Return the Instance with this uuid, or with this Type and identifier.

    Raises UnknownInstance.
    """
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
    """Return an Instance as :func:`get` does, from a coroutine."""
    return await sync_to_async(get)(uuid, type=type, identifier=identifier)


def _suggest_type(type: str) -> str:
    """Return a hint with the closest identifier if a Type does not exist, otherwise ""."""
    known = list(Type.objects.using(settings.DATABASE).values_list("identifier", flat=True))
    if type in known:
        return ""
    return f" No Type {type!r} is registered.{did_you_mean(type, known)}"


def find_instances(instances: Iterable[object], by: str = "") -> list[Instance]:
    """Return the Instances as a list; each of ``instances`` is an Instance or its uuid.

    Raises UnknownInstance, or InvalidOption if ``by``, the actor, is not valid text for the log.
    """
    check_actor(by)
    return [_find_instance(each) for each in instances]


def _find_instance(instance: object) -> Instance:
    if isinstance(instance, Instance):
        return instance
    if isinstance(instance, (str, UUID)):
        return get(instance)
    raise UnknownInstance(f"{instance!r} is not an Instance or the uuid of one.")


@needs_tables
def inputs(instance: InstanceLike) -> Inputs | None:
    """Return the Inputs of an Instance; None if ATP has removed them. Raises UnknownInstance."""
    owner = _find_instance(instance)
    row = Inputs.objects.using(settings.DATABASE).filter(pk=owner.pk).first()
    if row is not None:
        row.instance = owner
    return row


@needs_tables
def response(instance: InstanceLike) -> Response | None:
    """Return the Response of an Instance (RFC 14), or None if there is none.

    Raises UnknownInstance.
    """
    rows = Response.objects.using(settings.DATABASE)
    return rows.filter(instance=_find_instance(instance)).first()


@needs_tables
def steps(instance: InstanceLike) -> QuerySet[Step]:
    """Return the steps of an Instance, in the order in which each first began."""
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
    FAILED, or depends on a FAILED node that is not redriven in the same call. Even then, this
    redrives all other Instances.
    """
    instances = find_instances(instances, by)
    changes = [Move(event=Event.REDRIVE, instance=i.pk, who=by) for i in instances]
    refused = get_store().records.record(changes)
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

    This also finds an Instance that was enqueued under a former or newer name of the Type.
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
    """Return a clause that says why a FAILED Instance could not be redriven."""
    key = instance.type_id
    family = group_renamed_types(Type.objects.using(settings.DATABASE)).get(key, {key})
    tasks = Task.objects.using(settings.DATABASE).filter(type__in=family)
    for other in tasks.filter(unique_key=instance.unique or "").select_related("instance"):
        return f"and its unique key is taken by {other.instance.uuid}, which is live"
    if Node.objects.using(settings.DATABASE).filter(pk=instance.pk).exclude(REDRIVABLE).exists():
        return "and its graph has been undone"
    return "and so is a node that it waits for; redrive that node first, or both together"


@needs_tables
def release(instance: InstanceLike, by: str = "") -> bool:
    """Send a claimed Instance back to the queue (RFC 14).

    This commands the worker to stop the attempt and hand the Instance back, which spends no retry
    and no restart. Returns True if the command was sent, and False if there was nothing to do, for
    example because the Instance is waiting. Raises IllegalTransition if the Instance is terminal,
    or is being cancelled.
    """
    [instance] = find_instances([instance], by)
    is_sent = get_store().control.request(instance.pk, RELEASE, who=by)
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

    Waiting Instances become FAILED at once. For a claimed Instance, this commands the worker to
    interrupt the handler. If the handler has not ended after ``cancel_grace``, the daemon kills the
    worker. Returns the claimed Instances, which have not ended yet. Raises IllegalTransition if an
    Instance is terminal or is being cancelled already. Even then, this cancels all other Instances.
    """
    instances = find_instances(instances, by)
    keys = [instance.pk for instance in instances]
    results = [get_store().control.cancel(chunk, who=by) for chunk in chunks(keys)]
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

    This sends a command to the running attempt. The handler pauses at its next ``context.check()``
    or ``progress()`` outside a transaction, or wherever it is if the Type is stoppable. Raises
    IllegalTransition if the Instance is not running, or if the command was sent before. Raises
    NotPausable if this process declares the Type as transactional or with a concurrency, or if an
    executor runs the attempt.
    """
    [instance] = find_instances([instance], by)
    type = instance.type.identifier
    if registry.is_transactional(type):
        raise NotPausable(
            f"{instance.uuid} cannot be paused: {type} is transactional, so the whole handler runs "
            "in one transaction, and a pause would keep the transaction open.",
            event=Event.PAUSE,
            state=State(instance.state),
        )
    if registry.runs_in_loops(type):
        raise NotPausable(
            f"{instance.uuid} cannot be paused: its Type has a concurrency, and an attempt that "
            "waits in a loop keeps nobody from working.",
            event=Event.PAUSE,
            state=State(instance.state),
        )
    if executor := _executor_of(instance):
        raise NotPausable(
            f"{instance.uuid} cannot be paused: the executor {executor!r} runs it, and no daemon "
            "can pause what an engine runs.",
            event=Event.PAUSE,
            state=State(instance.state),
        )
    _send_command(instance, PAUSE, Event.PAUSE, "paused", by)


@needs_tables
def resume(instance: InstanceLike, by: str = "") -> None:
    """Let a PAUSED Instance continue as soon as a worker is free.

    If the Instance has not paused yet, this withdraws the command to pause. Raises
    IllegalTransition if the Instance is neither paused nor about to pause, or if the command to
    resume was sent before.
    """
    [instance] = find_instances([instance], by)
    _send_command(instance, RESUME, Event.RESUME, "resumed", by)


@needs_tables
def take_stack(instance: InstanceLike, by: str = "") -> None:
    """Ask where the running attempt of an Instance stands.

    The daemon that runs it writes the stacks of its threads to the log within about two seconds,
    with memory, processor time and, on PostgreSQL, what its database session waits for. The command
    leaves a pending pause or release as it is. Raises IllegalTransition if the Instance is neither
    RUNNING nor PAUSED, if it is being cancelled, if the stack was asked for before, if an executor
    runs the attempt, or if this process declares the Type with a concurrency.
    """
    [instance] = find_instances([instance], by)
    if registry.runs_in_loops(instance.type.identifier):
        raise IllegalTransition(
            f"The stack of {instance.uuid} cannot be taken: its Type has a concurrency, and the "
            "stack of a loop shows only the step that runs.",
            state=State(instance.state),
        )
    if executor := _executor_of(instance):
        raise IllegalTransition(
            f"The stack of {instance.uuid} cannot be taken: the executor {executor!r} runs it, and "
            "no daemon can look into what an engine runs.",
            state=State(instance.state),
        )
    if get_store().control.request(instance.pk, STACK, who=by):
        return
    refresh([instance])
    request = _pending_request(instance)
    more = f", and {_BEING_CANCELLED}" if request == CANCEL else ""
    more = ", and somebody has asked for it already" if split_request(request)[1] else more
    raise IllegalTransition(
        f"The stack of {instance.uuid} cannot be taken: it is {text.describe_state(instance)}"
        f"{more}.",
        state=State(instance.state),
    )


def _executor_of(instance: Instance) -> str:
    """Return the name of the executor that runs the attempt of an Instance, or ""."""
    tasks = Task.objects.using(settings.DATABASE).filter(pk=instance.pk, daemon__isnull=False)
    labels = tasks.values_list("daemon__labels", flat=True).first()
    return labels.get(EXECUTOR, "") if isinstance(labels, dict) else ""


def _send_command(instance: Instance, command: str, event: Event, done: str, by: str) -> None:
    """Send a command to the attempt of an Instance. Raises IllegalTransition.

    ``done`` is the command's past participle for the error message, such as "paused".
    """
    is_sent = get_store().control.request(instance.pk, command, who=by)
    refresh([instance])
    if is_sent:
        return
    words = {CANCEL: _BEING_CANCELLED, command: f"is being {done} already"}
    before = words.get(_pending_command(instance))
    more = f", and {before}" if before else ""
    raise IllegalTransition(
        f"{instance.uuid} cannot be {done}: it is {text.describe_state(instance)}{more}.",
        event=event,
        state=State(instance.state),
    )


def _pending_command(instance: Instance) -> str:
    """Return the command that an Instance's attempt has not obeyed yet; "" if there is none."""
    return split_request(_pending_request(instance))[0]


def _pending_request(instance: Instance) -> str:
    tasks = Task.objects.using(settings.DATABASE).filter(pk=instance.pk)
    return tasks.values_list("request", flat=True).first() or ""


def chunks(keys: Sequence[int]) -> list[Sequence[int]]:
    return [keys[start : start + CHUNK] for start in range(0, len(keys), CHUNK)]


def refresh(instances: Iterable[Instance]) -> None:
    """Reload Instances from the database. Raises UnknownInstance if one has been removed."""
    for removed in Instance.objects.using(settings.DATABASE).reload(instances):
        raise UnknownInstance(f"The Instance {removed.uuid} no longer exists.")


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

    Each of ``instances`` is an Instance or its uuid. ``due`` is a datetime or a timedelta from now;
    ``timedelta(0)`` makes the Instances due now. ``postpone`` is a timedelta that is added to the
    due time, or to now if the due time has passed. Options that are left out stay as they are, and
    so does ``start_before``. Raises InvalidOption before anything is changed. Raises
    IllegalTransition if an Instance is not waiting, but still changes all other Instances.
    """
    instances = find_instances(instances, by)
    store = get_store()
    changes = check_changes(
        priority=priority, due=due, postpone=postpone, collection=collection, now=store.now
    )
    changed = store.control.change([instance.pk for instance in instances], changes, who=by)
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
    """Check the new values for waiting Instances and return them as :class:`Changes`.

    ``due_name`` is what error messages call the parameter ``due``. Raises InvalidOption.
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
        raise InvalidOption(f"{due_name}={due!r}: must be 0 or more.")
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
    """Return 0 if the Type exists, otherwise raise UnknownType with the closest identifier."""
    if str(type) not in registry:
        get_type(str(type))
    return 0


@needs_tables
def waiting(
    type: TypeLike | None = None, collection: str | None = None, *, most: int | None = None
) -> int:
    """Return how many Instances of all Types, of one Type or of one lane are waiting.

    This counts no further than ``most``. Raises UnknownType.
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
    """Remove ended Instances whose retention period is over; return how many were removed."""
    check_actor(by)
    removed = 0
    while count := get_store().removal.purge(type=type, limit=CHUNK, who=by):
        removed += count
    return removed


@needs_tables
def delete(*instances: InstanceLike, by: str = "", cancel: bool = False, wait: float = 0.0) -> int:
    """Remove terminal Instances with their inputs, response, files and log (RFC 14).

    Returns how many Instances were removed. The log of their Type records the removal. If an
    Instance is live or is a node of a graph, this removes nothing and raises IllegalTransition.
    With ``cancel``, this cancels live Instances first and removes those that have ended within
    ``wait`` seconds. Waiting Instances end at once. An Instance that takes longer is cancelled but
    stays in the database.
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
    return sum(store.removal.purge(instances=chunk, limit=CHUNK, who=by) for chunk in chunks(keys))


def _refuse_nodes(keys: Sequence[int]) -> None:
    """Raise IllegalTransition if one of these Instances is a node of a graph.

    Other nodes of the graph may need the result of that node.
    """
    nodes = Node.objects.using(settings.DATABASE).select_related("instance", "graph")
    node = nodes.filter(pk__in=keys, graph__isnull=False).first()
    if node is not None:
        raise IllegalTransition(
            f"{node.instance} cannot be removed: it is the node {node} of the graph {node.graph}. "
            "A graph is removed as a whole, when the retention of all its nodes is over.",
            state=State(node.instance.state),
        )


def _cancel_and_wait(instances: list[Instance], by: str, wait: float) -> None:
    """Cancel live Instances, and wait up to ``wait`` seconds for the claimed ones to end."""
    if not instances:
        return
    try:
        cancel(*instances, by=by)
    except IllegalTransition:
        pass  # an Instance has ended in the meantime, or is being cancelled already
    until = time.monotonic() + wait
    for instance in instances:
        if wait and not instance.is_terminal:
            with suppress(WaitTimeout):
                instance.wait(max(0.0, until - time.monotonic()))
    refresh(instances)

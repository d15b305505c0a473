"""The verbs of Instances: find, redrive, release, cancel, pause, resume."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db.models import QuerySet

from ..conf import settings
from ..exceptions import IllegalTransition, NotPausable, UnknownInstance
from ..models import Inputs, Instance, Node, Response, Step, Task, Type
from ..rows.graph import REDRIVABLE
from ..rows.type import families
from ..states import Event, State
from ..store import get_store
from ..store.values import CANCEL, PAUSE, RELEASE, RESUME, Move
from ..words import wording
from ..words.hints import did_you_mean
from .actor import check_by
from .migrated import needs_tables
from .registry import registry

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from .types import TypeLike

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
            f"{instance.uuid} cannot be redriven: it is {wording.state(instance)}, {why}.",
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
            f"{instance.uuid} cannot be released: it is {wording.state(instance)}{more}.",
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
                f"{instance.uuid} cannot be cancelled: it is {wording.state(instance)}{more}.",
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
        f"{instance.uuid} cannot be {done}: it is {wording.state(instance)}{more}.",
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

"""The verbs: everything that an application or an operator does with the queue.

The pages, the API, the admin, the shell and the application call these and
nothing below them. ``by`` names who acts and through which channel, as text
for the log.
"""

import time
from collections import defaultdict
from contextlib import nullcontext, suppress
from uuid import UUID

from django.db import transaction

from .calls import Call, call_of, identifiers_of, request_of
from .changing import change  # noqa: F401 (a verb)
from .commanding import command, get_daemon  # noqa: F401 (verbs)
from .conf import did_you_mean, settings
from .controls import (  # noqa: F401 (verbs on places, which have a module of their own)
    declared_limits,
    drop,
    gates,
    hold,
    limit,
    limits,
    open_gate,
    unlimit,
)
from .exceptions import (
    ATPError,
    IllegalTransition,
    UnknownInstance,
    UnknownType,
    WaitTimeout,
)
from .models import Inputs, Instance, Response, Task, Type
from .registry import is_identifier, registry
from .states import Event, State
from .store import get_store
from .store.findings import NOWHERE, Place
from .store.values import CANCEL, PAUSE, RELEASE, RESUME, Change

# Instances written or removed in one statement.
CHUNK = 1000


# Types


def register(*task_types, by=""):
    """Write declared Types to the database; again is an update (RFC 14)."""
    store = get_store()
    store.register([task_type.registration() for task_type in task_types], who=by)
    store.declare({str(task_type): declared_limits(task_type) for task_type in task_types}, who=by)


def register_all(by=""):
    """Write every Type that this process declares."""
    register(*registry, by=by)


def unregister(identifier, by=""):
    """Remove a Type from the database (RFC 14).

    Raises UnknownType, or TypeInUse while Instances of it exist.
    """
    get_store().unregister(identifier, who=by)


# Enqueueing


def enqueue(task_type, /, *args, **kwargs):
    """Enqueue one Instance; see :meth:`TaskType.enqueue`."""
    return enqueue_calls([Call(task_type=task_type, args=args, kwargs=kwargs)])[0]


def enqueue_many(task_type, inputs, *, identifiers=None):
    """Enqueue many Instances, all or none; see :meth:`TaskType.enqueue_many`."""
    calls = [call_of(task_type, item) for item in inputs]
    names = identifiers_of(task_type, len(calls), identifiers)
    store = get_store()
    # One look at the options, however many there are.
    options = task_type.options.checked(store.now)
    most = settings.MAX_INPUTS_SIZE
    requests = [
        request_of(call, options, name, limit=most) for call, name in zip(calls, names, strict=True)
    ]
    return store.enqueue(task_type.registration(), requests)


def enqueue_calls(calls):
    """Enqueue calls of any Types, each with options of its own, all or none.

    Returns the Instances in the same order. Raises what
    :meth:`TaskType.enqueue` does; what is wrong with one call, and not with
    two together, has its place among them as ``call``.
    """
    store = get_store()
    most = settings.MAX_INPUTS_SIZE
    of_type = defaultdict(list)
    for number, call in enumerate(calls):
        try:
            options = call.task_type.options.checked(store.now)
            [name] = identifiers_of(call.task_type, 1, None)
            request = request_of(call, options, name, limit=most)
        except ATPError as error:
            error.call = number
            raise
        of_type[call.task_type.identifier].append((number, call.task_type, request))
    enqueued = {}
    # A verb of the store is a transaction already.
    together = transaction.atomic(using=settings.DATABASE) if len(of_type) > 1 else nullcontext()
    with together:
        for numbered in of_type.values():
            numbers, task_types, requests = zip(*numbered, strict=True)
            instances = store.enqueue(task_types[0].registration(), list(requests))
            enqueued.update(zip(numbers, instances, strict=True))
    return [enqueued[number] for number in sorted(enqueued)]


# Looking


def get(uuid=None, *, type=None, identifier=None):
    """Return the Instance of this uuid, or of this Type and identifier.

    Raises UnknownInstance.
    """
    rows = Instance.objects.using(settings.DATABASE).select_related("type")
    try:
        if uuid is not None:
            return rows.get(uuid=uuid if isinstance(uuid, UUID) else UUID(str(uuid)))
        if identifier is not None:
            return rows.get(type__identifier=str(type), identifier=identifier)
    except (Instance.DoesNotExist, ValueError):
        pass
    if uuid is None and identifier is None:
        raise UnknownInstance("An Instance is found by its uuid, or by type and identifier.")
    named = uuid if uuid is not None else f"of {type} with identifier {identifier!r}"
    raise UnknownInstance(f"There is no Instance {named}.")


def get_type(identifier):
    """Return the registered Type. Raises UnknownType, with the closest that there is."""
    types = Type.objects.using(settings.DATABASE)
    # What can be no identifier may be text that the database does not take.
    found = types.filter(identifier=identifier).first() if is_identifier(identifier) else None
    if found is None:
        known = types.values_list("identifier", flat=True)
        raise UnknownType(f"No Type {identifier!r} is registered.{did_you_mean(identifier, known)}")
    return found


def declared(identifier):
    """Return the Type as this process declares it: only its handler says which inputs fit.

    Raises UnregisteredHandler if only the database knows it, UnknownType if nobody does.
    """
    if identifier in registry or not is_identifier(identifier):
        return registry.get(identifier)
    types = Type.objects.using(settings.DATABASE)
    is_known = types.filter(identifier=identifier).exists()
    return registry.handler_of(identifier) if is_known else registry.get(identifier)


def inputs(instance):
    """Return the Inputs of an Instance, or None while it is being removed."""
    return Inputs.objects.using(settings.DATABASE).filter(pk=instance.pk).first()


def response(instance):
    """Return the Response of an Instance, or None if it has none (RFC 14)."""
    return Response.objects.using(settings.DATABASE).filter(instance=instance).first()


def task(instance):
    """Return the Task of an Instance, with its daemon; None if it has ended."""
    tasks = Task.objects.using(settings.DATABASE).select_related("daemon")
    return tasks.filter(pk=instance.pk).first()


def size(type=None):
    """Return how many Instances are live: waiting or claimed."""
    tasks = Task.objects.using(settings.DATABASE)
    return tasks.filter(type__identifier=str(type)).count() if type else tasks.count()


# Checking


def scan(*, repair=True, by=""):
    """Look at the whole queue for what should never be, and return the list of Findings.

    What is safe to mend is mended, unless ``repair`` is off. It takes the
    longer the more Instances there are; daemons do the same a part at a time.
    """
    found, place = {}, None
    while place != Place():
        scanned = get_store().scan(place, who=by, repair=repair)
        found |= {finding.key: finding for finding in scanned.findings}
        place = scanned.place
    return list(found.values())


def suspicions():
    """Return the Findings that indexes tell at once, with nothing mended."""
    return list(get_store().scan(NOWHERE, repair=False).findings)


# Steering


def redrive(*instances, by=""):
    """Send FAILED Instances back to the queue, with their budgets as new.

    Raises IllegalTransition if one is not FAILED; the others are redriven.
    """
    changes = [Change(event=Event.REDRIVE, instance=i.pk, who=by) for i in instances]
    refused = get_store().record(changes)
    _refresh(instances)
    for refusal in refused:
        instance = next(i for i in instances if i.pk == refusal.instance)
        raise IllegalTransition(
            f"{instance.uuid} cannot be redriven: it is {instance.state}, not {State.FAILED}.",
            event=Event.REDRIVE,
            state=State(instance.state),
        )


def release(instance, by=""):
    """Re-enqueue a live Instance (RFC 14).

    If it is claimed, its holder is asked to stop the attempt and hand it
    back; no budget is charged. If it waits, there is nothing to do. Returns
    whether a holder was asked. Raises IllegalTransition if it is terminal.
    """
    asked = get_store().request(instance.pk, RELEASE, who=by)
    _refresh([instance])
    row = None if asked or instance.is_terminal else task(instance)
    is_cancelled = row is not None and row.request == CANCEL
    if not asked and (instance.is_terminal or is_cancelled):
        more = f", and {_BEING_CANCELLED}" if is_cancelled else ""
        raise IllegalTransition(
            f"{instance.uuid} cannot be released: it is {instance.state}{more}.",
            event=Event.RELEASE,
            state=State(instance.state),
        )
    return asked


_BEING_CANCELLED = "has been asked to be cancelled already"


def cancel(*instances, by=""):
    """End live Instances: FAILED, with the reason CANCELLED.

    What waits is FAILED at once. Of what is claimed the holder is asked: it interrupts the
    handler, and kills it after its ``cancel_grace``; the Instance may finish before. Returns
    those, which have not ended yet. Raises IllegalTransition if one is terminal, or has been
    asked to be cancelled already; the others are cancelled.
    """
    keys = [instance.pk for instance in instances]
    chunks = [keys[start : start + CHUNK] for start in range(0, len(keys), CHUNK)]
    done = [get_store().cancel(chunk, who=by) for chunk in chunks]
    failed, asked, before = (
        {key for each in done for key in getattr(each, name)}
        for name in ("failed", "asked", "before")
    )
    _refresh(instances)
    for instance in instances:
        if instance.pk not in failed | asked:
            more = f", and {_BEING_CANCELLED}" if instance.pk in before else ""
            raise IllegalTransition(
                f"{instance.uuid} cannot be cancelled: it is {instance.state}{more}.",
                event=Event.FAIL,
                state=State(instance.state),
            )
    return [instance for instance in instances if instance.pk in asked]


def pause(instance, by=""):
    """Put a RUNNING Instance on hold (RFC 14's PAUSED).

    Its daemon is asked: it stops at its next ``context.check()`` or ``progress()`` outside a
    transaction, or, if its Type is stoppable, wherever it is. Raises IllegalTransition if it
    is not running, or has been asked already.
    """
    _hold(instance, PAUSE, Event.PAUSE, "paused", by)


def resume(instance, by=""):
    """Let a PAUSED Instance go on, as soon as there is a place for it.

    Raises IllegalTransition if it is not on hold, nor about to be, or has been asked already.
    """
    _hold(instance, RESUME, Event.RESUME, "resumed", by)


def _hold(instance, request, event, done, by):
    asked = get_store().request(instance.pk, request, who=by)
    _refresh([instance])
    if asked:
        return
    row = task(instance)
    before = row.request if row is not None else ""
    more = {
        CANCEL: f", and {_BEING_CANCELLED}",
        request: f", and has been asked to be {done} already",
    }
    raise IllegalTransition(
        f"{instance.uuid} cannot be {done}: it is {instance.state}{more.get(before, '')}.",
        event=event,
        state=State(instance.state),
    )


def purge(type=None, by=""):
    """Remove terminal Instances that are older than their Type's retention; returns how many."""
    removed = 0
    while count := get_store().purge(type=type, limit=CHUNK, who=by):
        removed += count
    return removed


def delete(*instances, by="", cancel=False, wait=0.0):
    """Remove terminal Instances, with inputs, response, files and log (RFC 14).

    Returns how many. That it was done stays in the log of their Type. Raises
    IllegalTransition, with nothing removed, if one is live. With ``cancel`` those are
    cancelled first: what waits is removed at once; what a daemon holds only if it ends
    within ``wait`` seconds, and else stays, cancelled, to be removed later.
    """
    _refresh(instances)
    if cancel:
        _end([instance for instance in instances if not instance.is_terminal], by, wait)
        instances = [instance for instance in instances if instance.is_terminal]
    for instance in instances:
        if not instance.is_terminal:
            raise IllegalTransition(
                f"{instance.uuid} cannot be removed: it is {instance.state}.",
                state=State(instance.state),
            )
    keys = [instance.pk for instance in instances]
    store = get_store()
    return sum(
        store.purge(instances=keys[start : start + CHUNK], limit=CHUNK, who=by)
        for start in range(0, len(keys), CHUNK)
    )


def _end(instances, by, wait):
    """Cancel live Instances, and wait so many seconds for those that a daemon holds."""
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
    _refresh(instances)


def _refresh(instances):
    for instance in instances:
        try:
            instance.refresh_from_db(using=settings.DATABASE)
        except Instance.DoesNotExist:
            raise UnknownInstance(f"There is no Instance {instance.uuid} any more.") from None

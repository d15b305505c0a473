"""Steering: what an operator does with Instances; :mod:`atp.queue` is where it is called.

An Instance is given as itself or by its uuid; where it is itself, it is as it is then.
"""

import time
from contextlib import suppress

from . import wording
from .conf import settings
from .exceptions import IllegalTransition, NotPausable, UnknownInstance, WaitTimeout
from .finding import check_by, meant
from .models import Instance, Task
from .registry import registry
from .states import Event, State
from .store import get_store
from .store.values import CANCEL, PAUSE, RELEASE, RESUME, Change

# Instances written or removed in one statement.
CHUNK = 1000

_BEING_CANCELLED = "has been asked to be cancelled already"


def redrive(*instances, by=""):
    """Send FAILED Instances back to the queue, with their budgets as new.

    Raises IllegalTransition if one is not FAILED; the others are redriven.
    """
    instances = meant(instances, by)
    changes = [Change(event=Event.REDRIVE, instance=i.pk, who=by) for i in instances]
    refused = get_store().record(changes)
    refresh(instances)
    for refusal in refused:
        instance = next(i for i in instances if i.pk == refusal.instance)
        raise IllegalTransition(
            f"{instance.uuid} cannot be redriven: it is {wording.state(instance)}, "
            f"not {State.FAILED}.",
            event=Event.REDRIVE,
            state=State(instance.state),
        )


def release(instance, by=""):
    """Re-enqueue a live Instance (RFC 14).

    If it is claimed, its holder is asked to stop the attempt and hand it
    back; no budget is charged. If it waits, there is nothing to do. Returns
    whether a holder was asked. Raises IllegalTransition if it is terminal.
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


def cancel(*instances, by=""):
    """End live Instances: FAILED, with the reason CANCELLED.

    What waits is FAILED at once. Of what is claimed the holder is asked: it interrupts the
    handler, and kills it after its ``cancel_grace``; the Instance may finish before. Returns
    those, which have not ended yet. Raises IllegalTransition if one is terminal, or has been
    asked to be cancelled already; the others are cancelled.
    """
    instances = meant(instances, by)
    keys = [instance.pk for instance in instances]
    done = [get_store().cancel(chunk, who=by) for chunk in _chunks(keys)]
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


def pause(instance, by=""):
    """Put a RUNNING Instance on hold (RFC 14's PAUSED).

    Its daemon is asked: it stops at its next ``context.check()`` or ``progress()`` outside a
    transaction, or, if its Type is stoppable, wherever it is. Raises IllegalTransition if it
    is not running, or has been asked already; NotPausable if its Type is transactional, as
    far as this process knows the Type.
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
    _hold(instance, PAUSE, Event.PAUSE, "paused", by)


def resume(instance, by=""):
    """Let a PAUSED Instance go on, as soon as there is a place for it.

    If it has not paused yet, the wish is taken back: it is RUNNING then. Raises
    IllegalTransition if it is not on hold, nor about to be, or has been asked already.
    """
    [instance] = meant([instance], by)
    _hold(instance, RESUME, Event.RESUME, "resumed", by)


def _hold(instance, request, event, done, by):
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


def purge(type=None, by=""):
    """Remove terminal Instances that are older than their Type's retention; returns how many."""
    check_by(by)
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
    instances = meant(instances, by)
    refresh(instances)
    if cancel:
        _end([instance for instance in instances if not instance.is_terminal], by, wait)
        instances = [instance for instance in instances if instance.is_terminal]
    for instance in instances:
        if not instance.is_terminal:
            raise IllegalTransition(
                f"{instance.uuid} cannot be removed: it is {wording.state(instance)}.",
                state=State(instance.state),
            )
    keys = [instance.pk for instance in instances]
    store = get_store()
    return sum(store.purge(instances=chunk, limit=CHUNK, who=by) for chunk in _chunks(keys))


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
    refresh(instances)


def _chunks(keys):
    return [keys[start : start + CHUNK] for start in range(0, len(keys), CHUNK)]


def _asked_of(instance):
    """What has been asked of its holder; empty if nothing was, or it has ended."""
    tasks = Task.objects.using(settings.DATABASE).filter(pk=instance.pk)
    return tasks.values_list("request", flat=True).first() or ""


def refresh(instances):
    """Read Instances anew. Raises UnknownInstance if one is gone."""
    for instance in instances:
        try:
            instance.refresh_from_db(using=settings.DATABASE)
        except Instance.DoesNotExist:
            raise UnknownInstance(f"There is no Instance {instance.uuid} any more.") from None

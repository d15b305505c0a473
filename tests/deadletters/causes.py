"""Causes of dead letters as daemons record them, and the transitions that record them."""

from atp.daemon.worker.endings import failed as failed_by
from atp.states import Event, Reason
from atp.store import get_store
from atp.store.failures import failed, of_loss, plain
from atp.store.values import Move

__all__ = ["caught", "failed", "failed_by", "moves", "of_loss", "plain"]


def caught(call, *args):
    """Return what a call raises."""
    try:
        call(*args)
    except BaseException as error:
        return error
    raise AssertionError("it did not raise")


def moves(claimed, cause, message="it failed"):
    """Return transitions that fail the claimed Tasks; ``{}`` in a message becomes the key."""
    now = get_store().now()
    return [
        Move(
            event=Event.FAIL,
            instance=each.instance,
            attempt=each.number,
            started=now,
            time=now,
            reason=Reason.ERROR,
            message=message.format(each.instance),
            failed=cause,
        )
        for each in claimed
    ]

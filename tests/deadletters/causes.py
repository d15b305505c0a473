"""Why dead letters FAILED: causes as daemons find them, and the moves that record them."""

from atp.daemon.worker.fingerprints import failed as failed_by
from atp.states import Event, Reason
from atp.store import get_store
from atp.store.failures import failed, of_loss, plain
from atp.store.values import Move

__all__ = ["failed", "failed_by", "moves", "of_loss", "plain"]


def moves(claimed, cause, message="it failed"):
    """Return the moves by which what is claimed FAILED; ``{}`` in a message is its key."""
    now = get_store().now()
    return [
        Move(
            event=Event.FAIL,
            instance=each.instance,
            attempt=each.attempt,
            started=now,
            time=now,
            reason=Reason.ERROR,
            message=message.format(each.instance),
            failed=cause,
        )
        for each in claimed
    ]

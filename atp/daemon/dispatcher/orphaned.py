"""The end of a dispatcher whose supervisor is dead: nothing of its daemon may go on."""

import contextlib
import queue

from ...conf import settings
from ...store import get_store
from ...words import attempt_messages
from .. import journal
from ..system import descendants
from .database_thread import DatabaseThread


def end(identity, sessions, mark):
    """Kill what is left of the workers, and let others have the Tasks."""
    journal.supervisor_died()
    if descendants.kill_sessions(sessions, mark):
        _give_up_tasks(identity)


def _give_up_tasks(identity):
    """Let others have the Tasks before the lease is over: nothing runs here any more (G3)."""
    daemon = identity.current
    if daemon is None or identity.lock:
        return  # a lock is free as soon as this process has ended
    results, store = queue.SimpleQueue(), get_store()
    thread = DatabaseThread("atp-leave", store, results, lambda: None)
    why = attempt_messages.supervisor_killed()
    thread.submit("leaving", lambda: store.leave(daemon, lost=why), None)
    # If that takes longer, it ends with this process, and the lease runs out.
    with contextlib.suppress(queue.Empty):
        results.get(timeout=settings.STATEMENT_TIMEOUT)

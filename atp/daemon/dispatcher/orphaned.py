"""The end of a dispatcher whose supervisor is dead: it kills all that is left of its daemon."""

import contextlib
import queue

from ... import messages
from ...conf import settings
from ...store import get_store
from .. import journal
from ..system import descendants
from .database_thread import DatabaseThread


def end(identity, sessions, mark):
    """Kill the remaining workers and their processes, and give the Tasks up."""
    journal.supervisor_died()
    if descendants.kill_sessions(sessions, mark):
        _give_up_tasks(identity)


def _give_up_tasks(identity):
    """Give the Tasks up before the lease is over, since none of them runs here any more (G3)."""
    daemon = identity.current
    if daemon is None or identity.lock:
        return  # the lock becomes free when this process ends
    results, store = queue.SimpleQueue(), get_store()
    thread = DatabaseThread("atp-leave", store, results, lambda: None)
    why = messages.supervisor_killed()
    thread.submit("leaving", lambda: store.daemons.leave(daemon, lost=why), None)
    # If the call takes longer, it ends with this process, and the lease runs out.
    with contextlib.suppress(queue.Empty):
        results.get(timeout=settings.STATEMENT_TIMEOUT)

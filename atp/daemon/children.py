"""What the supervisor's children do first. What they return is their exit status."""

import os
import signal

from . import descendants, processes, worker
from .dispatcher import ORPHANED, Dispatcher


def be_dispatcher(parent, control, page, options, folders, previous):
    """Be the dispatcher of the supervisor ``parent``."""
    processes.title("atpd-dispatch")
    dispatcher = Dispatcher(
        control, page, options, lock=folders.lock, mark=folders.mark, previous=previous
    )
    signal.signal(signal.SIGUSR1, dispatcher.orphan)
    if not processes.die_with_parent(parent, signal.SIGUSR1):
        return ORPHANED
    status = dispatcher.run()
    if status == ORPHANED:
        folders.remove()
    return status


def be_worker(parent, channel, tokens, page, options, folders, slot):
    """Be the worker of this slot."""
    processes.title(f"atpd-worker-{slot}")
    processes.adopt_descendants()
    processes.go_first()
    os.environ[descendants.MARK] = folders.mark
    if not processes.die_with_parent(parent, signal.SIGKILL):
        return ORPHANED
    return worker.main(slot, channel, tokens, page, folders.scratch, options)

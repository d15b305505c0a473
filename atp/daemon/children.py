"""What the supervisor's children do first. What they return is their exit status."""

import faulthandler
import gc
import io
import os
import signal
import sys

from . import descendants, processes, worker
from .dispatcher import ORPHANED, Dispatcher

# So many things more than were let go of, until the dispatcher looks for cycles among them.
GARBAGE = 50_000


def be_dispatcher(parent, control, page, options, folders, previous, request):
    """Be the dispatcher of the supervisor ``parent``."""
    processes.title("atpd-dispatch")
    # It makes and lets go of thousands of small things a second, none of which hold each other.
    gc.set_threshold(GARBAGE)
    dispatcher = Dispatcher(
        control,
        page,
        options,
        lock=folders.lock,
        mark=folders.mark,
        previous=previous,
        request=request,
    )
    signal.signal(signal.SIGUSR1, dispatcher.orphan)
    if not processes.die_with_parent(parent, signal.SIGUSR1):
        return ORPHANED
    status = dispatcher.run()
    if status == ORPHANED:
        folders.remove()
    return status


def be_worker(parent, channel, tokens, output, page, options, folders, slot):
    """Be the worker of this slot."""
    processes.title(f"atpd-worker-{slot}")
    processes.adopt_descendants()
    processes.go_first()
    _print_to(output)
    os.environ[descendants.MARK] = folders.mark
    if not processes.die_with_parent(parent, signal.SIGKILL):
        return ORPHANED
    return worker.main(slot, channel, tokens, page, folders.scratch, options)


def _print_to(output):
    """Have what this process prints go there, and the programs that it starts too."""
    for stream in (1, 2):
        os.dup2(output, stream)
    if output > 2:
        os.close(output)
    for file in (sys.stdout, sys.stderr):
        if isinstance(file, io.TextIOWrapper):
            file.reconfigure(line_buffering=True)
    # Where it was, if it crashes.
    faulthandler.enable(2, all_threads=False)

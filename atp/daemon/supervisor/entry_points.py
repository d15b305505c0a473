"""The main functions of the supervisor's children. Each returns the exit status."""

import faulthandler
import gc
import io
import os
import signal
import sys

from .. import journal
from ..dispatcher.dispatcher import Dispatcher
from ..dispatcher.stopping import ORPHANED
from ..sinks.log_thread import LogThread
from ..started import tell_started
from ..system import descendants, processes
from ..system.database import name_sessions
from ..system.stderr import NonBlockingStream
from ..worker import preparing, worker

# The number of new objects after which the dispatcher's garbage collector looks for cycles.
GARBAGE = 50_000


def be_dispatcher(parent, control, inherited, predecessor):
    """Run the dispatcher of the supervisor whose pid is ``parent``."""
    processes.title("atpd-dispatch")
    # The dispatcher makes and frees thousands of small objects a second, which form no cycles.
    gc.set_threshold(GARBAGE)
    inherited.stacks.close()
    log = LogThread(journal.lines_dropped)
    log.start()
    sys.stderr = NonBlockingStream()
    try:
        return _dispatch(parent, control, inherited, predecessor)
    except BaseException:
        journal.logger.critical("the dispatcher failed", exc_info=True)
        return 1
    finally:
        log.close()


def _dispatch(parent, control, inherited, predecessor):
    dispatcher = Dispatcher(control, inherited, predecessor)
    signal.signal(signal.SIGUSR1, dispatcher.orphan)
    if not processes.die_with_parent(parent, signal.SIGUSR1):
        return ORPHANED
    tell_started("dispatcher")
    status = dispatcher.run()
    if status == ORPHANED:
        inherited.folders.remove()
    return status


def be_worker(parent, channel, inherited, slot, tokens, output):
    """Run the worker of this slot. Its prints go to the descriptor ``output``."""
    processes.title(f"atpd-worker-{slot}")
    processes.adopt_descendants()
    processes.go_first()
    _print_to(output)
    os.environ[descendants.MARK] = inherited.folders.mark
    if not processes.die_with_parent(parent, signal.SIGKILL):
        return ORPHANED
    preparing.draw_other_numbers()
    name_sessions()
    inherited.stacks.answer(slot)
    tell_started("worker")
    return worker.main(slot, channel, tokens, inherited)


def _print_to(output):
    """Send the output of this process, and of the programs that it starts, to ``output``."""
    for stream in (1, 2):
        os.dup2(output, stream)
    if output > 2:
        os.close(output)
    for file in (sys.stdout, sys.stderr):
        if isinstance(file, io.TextIOWrapper):
            file.reconfigure(line_buffering=True)
    # If the process crashes, faulthandler writes its stack.
    faulthandler.enable(2, all_threads=False)

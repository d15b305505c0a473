"""Support for a daemon in a process that outlives it, as with ``call_command`` in a test."""

import contextlib
import gc
import logging
import resource
import signal

from ..sinks.interception import loggers
from ..system import processes


@contextlib.contextmanager
def process_restored():
    """Restore the process after the block: signals, limits, name, subreaper, gc and the log."""
    numbers = (*processes.STOPS, signal.SIGCHLD)
    handlers = {number: signal.getsignal(number) for number in numbers}
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    name, adopts = processes.current_title(), processes.adopts_descendants()
    frozen = gc.get_freeze_count()
    log = logging.getLogger("atp")
    logged = log.handlers, log.propagate, log.level
    try:
        yield
    finally:
        loggers.stop()
        signal.set_wakeup_fd(wakeup)
        for number, handler in handlers.items():
            if handler is not None:  # one that was not set from Python cannot be set again
                signal.signal(number, handler)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        processes.title(name)
        processes.adopt_descendants(adopts)
        if not frozen:
            gc.unfreeze()
        log.handlers, log.propagate = logged[:2]
        log.setLevel(logged[2])

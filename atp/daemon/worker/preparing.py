"""Preparing a worker's process for handlers: its standard input, its log and its caches."""

import contextlib
import logging
import os
import signal
import sys

from django.core.cache import caches

from ...authoring.context import LogCapture
from ...conf import settings

logger = logging.getLogger("atp.worker")

# Libraries end the processes that they have forked by these signals.
_ENDING = (signal.SIGTERM, signal.SIGINT)


def be_a_worker():
    """Prepare the newly forked process of a worker."""
    close_standard_input()
    let_children_be_ended()


def draw_other_numbers():
    """Seed numpy's generator anew: Python seeds its own after a fork, and numpy does not."""
    random = sys.modules.get("numpy.random")
    if random is not None:
        with contextlib.suppress(Exception):
            random.seed()


def close_standard_input():
    """Make standard input empty for this process and its programs: the daemon's may never end."""
    descriptor = os.open(os.devnull, os.O_RDONLY)
    if descriptor:  # it is 0 if the daemon was started without a standard input
        os.dup2(descriptor, 0)
        os.close(descriptor)
    os.set_inheritable(0, True)
    # The old object may have read a part of the input.
    sys.stdin = open(0, closefd=False)


def let_children_be_ended():
    """Make SIGTERM and SIGINT end the forks that handlers make, as libraries expect.

    The worker itself goes on to ignore these signals; the supervisor handles them.
    """
    own = {number: signal.getsignal(number) for number in _ENDING}
    masks = []

    def block():
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING))

    def unblock():
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.pop())

    def reset():
        for number, handler in own.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, signal.SIG_DFL)
        unblock()

    # Block the signals during the fork, or the child's old handler could swallow an early one.
    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=reset)


def open_root_logger(level):
    """Let the root logger pass records from ``level`` up; its own handlers get no more of them."""
    root = logging.getLogger()
    level = logging.getLevelNamesMapping()[level]
    if root.level > level:
        for handler in root.handlers:
            handler.setLevel(max(handler.level, root.level))
        root.setLevel(level)


def share_caches():
    """Create Django's caches now, or the context of each attempt would have its own."""
    for alias in caches.settings:
        with contextlib.suppress(Exception):  # the first user of the cache sees the error
            caches[alias]


def capture(threads):
    """Return the logging handler that writes into the log of the running Instance."""
    return LogCapture(is_of_attempt=threads.is_of_attempt, on_stray=_say_stray)


def open_logging(capture):
    """Make the root logger pass its records to ``capture``."""
    open_root_logger(settings.LOG_LEVEL)
    logging.getLogger().addHandler(capture)


def _say_stray(level, text):
    """Log, in the daemon's log, a line of a thread that an earlier attempt has left behind."""
    logger.log(level, "a thread that an earlier attempt left behind: %s", text)

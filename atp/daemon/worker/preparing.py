"""Preparing a worker's process for handlers: its standard input, its log and its caches."""

import contextlib
import logging
import os
import signal
import sys

from django.core.cache import caches

from ...authoring.log_capture import LogCapture
from ...conf import settings

logger = logging.getLogger("atp.worker")

# By these libraries end the processes that they have forked.
_ENDING = (signal.SIGTERM, signal.SIGINT)


def be_a_worker():
    """Prepare a process that was just forked."""
    close_standard_input()
    let_children_be_ended()


def close_standard_input():
    """Let the process, and what it starts, read nothing: its daemon's input may never end."""
    descriptor = os.open(os.devnull, os.O_RDONLY)
    if descriptor:  # it is 0 where a daemon was started without any
        os.dup2(descriptor, 0)
        os.close(descriptor)
    os.set_inheritable(0, True)
    # The object may have a part of the input in it.
    sys.stdin = open(0, closefd=False)


def let_children_be_ended():
    """Have the copies of this process that handlers make end by SIGTERM, as libraries expect.

    The worker itself leaves the signals of its daemon to the supervisor.
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

    # A signal that comes at once must not be taken by the handler that is yet to be replaced.
    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=reset)


def open_root_logger(level):
    """Let the root logger pass the records to be captured. Its own handlers pass no more."""
    root = logging.getLogger()
    level = logging.getLevelNamesMapping()[level]
    if root.level > level:
        for handler in root.handlers:
            handler.setLevel(max(handler.level, root.level))
        root.setLevel(level)


def share_caches():
    """Make Django's caches, which each context of variables would otherwise have of its own."""
    for alias in caches.settings:
        with contextlib.suppress(Exception):  # whoever uses it is told
            caches[alias]


def capture(threads):
    """Return the handler of logging that writes into the log of the Instance that runs."""
    return LogCapture(is_of_attempt=threads.is_of_attempt, on_stray=_say_stray)


def open_logging(capture):
    """Have the root logger pass to ``capture`` all that is captured."""
    open_root_logger(settings.LOG_LEVEL)
    logging.getLogger().addHandler(capture)


def _say_stray(level, text):
    """Tell the daemon's log what a thread said that an earlier attempt has left behind."""
    logger.log(level, "a thread that an earlier attempt left behind: %s", text)

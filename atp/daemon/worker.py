"""A worker: takes one Task after another from its channel and runs the handler."""

import contextlib
import logging
import os
import pickle
import shutil
import sys
import time
from functools import partial

from ..conf import settings
from ..context import Context, LogCapture, clean
from ..registry import registry
from . import execution, memory, processes
from .channel import Closed
from .connections import Connections
from .halting import Halting
from .hand import unpacked
from .interruption import Interruption
from .leftovers import Leftovers, Unkillable, has_children
from .options import hostname
from .outcome import DONE
from .page import NEVER
from .surroundings import Surroundings
from .transactions import Transaction

logger = logging.getLogger("atp.worker")

# While there is more in hand, the dispatcher is called no more often than this, in
# seconds: to wake it costs both a moment, and it looks by itself more often than that.
CALL_AFTER = 0.1
# To begin a transaction may take so much longer than the time-out, in seconds: on SQLite
# it waits for its turn.
BEGIN_WITHIN = 60.0
# What is longer, in bytes, goes through the channel.
MOST_IN_RING = 4096


class Worker:
    """The loop of one worker process. ``slot`` is its place in the page and in the log."""

    def __init__(self, slot, channel, tokens, page, scratch_root, options):
        self._slot = slot
        self._channel = channel
        self._tokens = tokens
        self._page = page
        self._ring = page.ring(slot)
        self._scratch = scratch_root / f"worker-{slot}"
        self._options = options
        # How this worker signs what it records itself.
        self._name = f"{hostname()}:{os.getppid()} worker {slot}"
        self._done = 0
        self._called = 0.0
        self._interruption = Interruption(lambda key: page.is_asked(slot, *key))
        self._interruption.listen()
        self._halting = Halting(page, slot)
        self._surroundings = Surroundings()
        self._connections = Connections()
        self._capture = LogCapture()
        self._leftovers = Leftovers()
        # Why it should run nothing more.
        self._worn_out = None

    def run(self):
        """Run Tasks until the channel is closed or the worker retires."""
        # Its predecessor in this slot may have died with a scratch directory left.
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(parents=True, exist_ok=True)
        open_root_logger(settings.LOG_LEVEL)
        self._lifelines = (1, 2, self._channel.fileno(), self._tokens.taking)
        self._inodes = self._identify()
        try:
            for serial, claimed in self._given():
                # What was taken back meanwhile has no token any more.
                if not self._tokens.take(serial):
                    continue
                self._perform(claimed)
                reason = self._reason_to_retire()
                if reason is not None:
                    self._channel.send(("retiring", reason))
                    return
        except Closed:
            return

    def _given(self):
        """Yield each task that the dispatcher has sent, with its serial number."""
        while True:
            try:
                tasks, _ = self._channel.receive(wait=False)
            except BlockingIOError:
                self._check_descriptors()
                self._call(processes.uptime())
                tasks, _ = self._channel.receive()
            yield from unpacked(tasks)

    def _check_descriptors(self):
        """End here if a handler has closed what this worker lives by, and opened other things."""
        if self._inodes != self._identify():
            raise OSError("a handler closed the descriptors of its worker")

    def _identify(self):
        return [os.fstat(number).st_ino for number in self._lifelines]

    def _reason_to_retire(self):
        limit = self._options.max_tasks_per_worker
        if limit is not None and self._done >= limit:
            return f"it has run {self._done} tasks"
        limit = self._options.max_memory_per_worker
        if limit is not None and self._done:
            resident = processes.resident_bytes()
            if resident > limit:
                return f"it has {resident >> 20} MiB resident, {limit >> 20} MiB are allowed"
        for file in (sys.stdout, sys.stderr):
            if file is not None and file.closed:
                return "a handler closed its standard output or error"
        if self._interruption.has_struck:
            # Whatever it was doing, a library may have been left halfway.
            return "its handler was interrupted"
        return self._worn_out

    def _perform(self, claimed):
        """Run one Task. What runs is in the page from before the handler until after its result."""
        started = processes.uptime()
        is_transactional = registry.is_transactional(claimed.type)
        # What is transactional waits for its transaction first, which is not its fault.
        self._enter(claimed, started, BEGIN_WITHIN if is_transactional else 0.0)
        report = partial(self._report, claimed)
        self._interruption.expect(claimed.key)
        self._halting.expect(claimed.key, report)
        outcome = self._execute(claimed, report, is_transactional)
        self._tell(claimed, started, outcome)
        self._page.leave(self._slot)
        self._done += 1

    def _enter(self, claimed, started, grace=0.0):
        """Write into the page what runs, and that its time begins then."""
        limits = claimed.parameters
        timeout = NEVER if limits.timeout is None else limits.timeout.total_seconds()
        most = limits.max_memory or 0
        before = memory.in_use(os.getpid()) if most else 0
        deadline = started + timeout + grace
        facts = (claimed.instance, claimed.attempt, deadline, started, most, before, timeout)
        self._page.enter(self._slot, *facts)

    def _tell(self, claimed, started, outcome):
        """Say how an attempt ended."""
        ended = processes.uptime()
        told = (*claimed.key, started, ended, None if outcome is DONE else outcome)
        record = pickle.dumps(told, protocol=pickle.HIGHEST_PROTOCOL)
        if len(record) > MOST_IN_RING or not self._ring.write(record):
            self._channel.send(("ended", *told))
        elif ended - self._called > CALL_AFTER:
            self._call(ended)

    def _call(self, now):
        """Have the dispatcher look into the ring."""
        self._called = now
        with contextlib.suppress(BlockingIOError):  # it has been called often enough
            self._channel.send(("look",), wait=False)

    def _report(self, claimed, kind, *values, at=None):
        """Pass on what a handler says while it runs. May come from any thread or child of it."""
        self._channel.send((kind, claimed.key, at or time.time(), *values))

    def _execute(self, claimed, report, is_transactional):
        """Prepare, run the handler, clean up; always returns an :class:`Outcome`."""
        transaction, told = None, report
        if is_transactional:
            transaction = Transaction(claimed, who=self._name, report=report)
            told = transaction.report
            transaction.begun = lambda: self._enter(claimed, processes.uptime())
            transaction.before_commit = partial(self._end_leftovers, claimed, told)
        context = Context(
            claimed,
            report=told,
            interruption=lambda: self._why_to_end(claimed),
            scratch_root=self._scratch,
            halting=self._halting,
        )
        root = logging.getLogger()
        if self._capture not in root.handlers:  # a handler may have configured logging anew
            root.addHandler(self._capture)
        self._capture.context = context
        try:
            self._connections.check()
            return execution.run(claimed, context, transaction, self._interruption)
        finally:
            self._surroundings.restore()
            self._end_leftovers(claimed, report)
            self._capture.context = None
            context.end()
            context.remove_scratch()
            self._connections.refresh()

    def _end_leftovers(self, claimed, report):
        """End what the handler has started and left running: it is part of the attempt."""
        if not has_children():
            return
        if claimed.type in registry and registry.get(claimed.type).keep_processes:
            self._leftovers.keep()
            return
        try:
            told = self._leftovers.end()
        except Unkillable as error:
            # They die with this worker at the latest.
            told = self._worn_out = str(error)
        if told:
            report("log", logging.WARNING, clean(told))

    def _why_to_end(self, claimed):
        if self._page.is_asked(self._slot, claimed.instance, claimed.attempt):
            return "asked to end"
        return None


def open_root_logger(level):
    """Let the root logger pass what is to be captured, and its own handlers what they did."""
    root = logging.getLogger()
    level = logging.getLevelNamesMapping()[level]
    if root.level > level:
        for handler in root.handlers:
            handler.setLevel(max(handler.level, root.level))
        root.setLevel(level)


def main(slot, channel, tokens, page, scratch_root, options):
    """Be a worker; never returns."""
    status = 1
    try:
        Worker(slot, channel, tokens, page, scratch_root, options).run()
        status = 0
    except BaseException:
        logger.critical("worker %s failed", slot, exc_info=True)
    finally:
        os._exit(status)

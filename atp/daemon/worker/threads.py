"""The threads of a loop: what attempts give to ``sync_to_async``, and Django's ORM, runs in them.

Each attempt has a lane, in which its calls follow each other. Any free thread takes the next call
of any lane. So at most as many connections are open as there are threads, and nobody waits for a
certain thread.
"""

import asyncio
import contextlib
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import connections

from ...conf import settings
from .transactions import Connections

logger = logging.getLogger("atp.worker")

# The number of threads.
THREADS = 8

R = TypeVar("R")
_Call = tuple[Future[Any], Callable[[], Any]]


class CallThreads:
    """The threads of one loop. They start when they are needed."""

    def __init__(self, count: int = THREADS) -> None:
        self._count = count
        self._threads: list[threading.Thread] = []
        self._lanes: queue.SimpleQueue[Lane] = queue.SimpleQueue()
        self._idle = 0
        self._lock = threading.Lock()

    def lane(self) -> "Lane":
        """Return a new lane."""
        return Lane(self._enter)

    def _enter(self, lane: "Lane") -> None:
        """Have a thread serve a lane that has calls."""
        with self._lock:
            self._lanes.put(lane)
            if self._lanes.qsize() > self._idle and len(self._threads) < self._count:
                thread = threading.Thread(target=self._run, name="atp-calls", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self) -> None:
        own = Connections()
        last: Lane | None = None
        while True:
            lane = self._next(own)
            if lane is not last:
                _guarded(own.put_back)
                last = lane
            lane.serve(own)
            if lane.is_over:
                _guarded(own.put_back)
                last = None

    def _next(self, own: Connections) -> "Lane":
        """Return the next lane that has calls; let the connections go if there is none for long."""
        with self._lock:
            self._idle += 1
        try:
            return self._lanes.get(timeout=settings.KEEP_CONNECTIONS or None)
        except queue.Empty:
            _guarded(own.put_back)
            _guarded(own.let_go)
            return self._lanes.get()
        finally:
            with self._lock:
                self._idle -= 1


def _guarded(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:
        logger.exception("a thread of a loop could not reset its connections")


class Lane(Executor):
    """The calls of one attempt, one after the other. ``is_over``: there will be no more."""

    def __init__(self, enter: Callable[["Lane"], None]) -> None:
        self._enter = enter
        self._calls: deque[_Call] = deque()
        self._changed = threading.Condition()
        self._is_served = False
        self.is_over = False
        # The aliases of the connections that the last call has left in a transaction.
        self.left_open: list[str] = []

    @staticmethod
    def enter(lane: "Callable[[], Lane]") -> None:
        """Let ``sync_to_async`` use this lane in the current context; ``lane()`` returns it."""
        sensitive = ThreadSensitiveContext()
        SyncToAsync.thread_sensitive_context.set(sensitive)
        SyncToAsync.context_to_thread_executor[sensitive] = _Late(lane)

    def submit(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        """Add a call; return its Future."""
        future: Future[R] = Future()
        with self._changed:
            self._calls.append((future, partial(function, *args, **kwargs)))
            if self._is_served:
                self._changed.notify()
                return future
            self._is_served = True
        self._enter(self)
        return future

    def serve(self, own: Connections) -> None:
        """Carry out the next call, in a thread; more if that leaves a transaction open."""
        while True:
            with self._changed:
                # A transaction that is open keeps this thread for the lane.
                while not self._calls:
                    self._changed.wait()
                future, call = self._calls.popleft()
            _carry_out(future, call)
            self.left_open = own.with_transaction()
            with self._changed:
                if self.left_open and not self.is_over:
                    continue
                if not self._calls:
                    self._is_served = False
                    return
            self._enter(self)
            return

    async def end(self) -> list[str]:
        """Wait until all calls are done; return the aliases of transactions that are left open."""
        return await asyncio.wrap_future(self.submit(self._end))

    def _end(self) -> list[str]:
        self.is_over = True
        return self.left_open


class _Late(Executor):
    """Stands for a lane that is made with its first call: most attempts make none."""

    def __init__(self, lane: Callable[[], Lane]) -> None:
        self._lane = lane

    def submit(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        return self._lane().submit(function, *args, **kwargs)


def _carry_out(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


class ClosingExecutor(ThreadPoolExecutor):
    """Threads that close the database connections which a call has opened."""

    def submit(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        return super().submit(_closing, partial(function, *args, **kwargs))


def _closing(call: Callable[[], R]) -> R:
    try:
        return call()
    finally:
        with contextlib.suppress(Exception):
            connections.close_all()

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
from typing import Any, Protocol, TypeVar

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import connections

from ...conf import settings
from .transactions import Connections

logger = logging.getLogger("atp.worker")

# The number of threads.
THREADS = 8

R = TypeVar("R")
_Call = tuple[Future[Any], Callable[[], Any]]


class Caller(Protocol):
    """Whoever has threads carry out calls: an attempt."""

    # Its calls in other threads than those of its lane.
    calls: list[Future[Any]]

    def begin_call(self) -> None: ...

    def end_call(self) -> None: ...


class CallThreads:
    """The threads of one loop. They start when they are needed."""

    def __init__(self, count: int = THREADS) -> None:
        self._count = count
        self._threads: list[threading.Thread] = []
        self._lanes: queue.SimpleQueue[Lane] = queue.SimpleQueue()
        self._idle = 0
        self._lock = threading.Lock()

    def lane(self, caller: Caller) -> "Lane":
        """Return a new lane for the calls of an attempt."""
        return Lane(caller, self._enter)

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
            del lane

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

    def __init__(self, caller: Caller, enter: Callable[["Lane"], None]) -> None:
        self._caller = caller
        self._enter = enter
        self._calls: deque[_Call] = deque()
        self._changed = threading.Condition()
        # Whether it waits for a thread, or has one.
        self._is_served = False
        self.is_over = False
        # The aliases of the connections that the last call has left in a transaction.
        self._left_open: list[str] = []

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
                while not self._calls and self._left_open and not self.is_over:
                    self._changed.wait()
                if not self._calls:
                    self._is_served = False
                    return
                future, call = self._calls.popleft()
            self._carry_out(future, call)
            del future, call
            self._left_open = _open_transactions(own)
            with self._changed:
                if self._left_open and not self.is_over:
                    continue
                if not self._calls:
                    self._is_served = False
                    return
            self._enter(self)
            return

    def _carry_out(self, future: Future[Any], call: Callable[[], Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        self._caller.begin_call()
        try:
            result = call()
        except BaseException as error:
            self._caller.end_call()
            future.set_exception(error)
        else:
            self._caller.end_call()
            future.set_result(result)

    async def end(self) -> list[str]:
        """Wait until all calls are done; return the aliases of transactions that are left open.

        Calls that were cancelled before they began are dropped.
        """
        with self._changed:
            self._calls = deque(each for each in self._calls if not each[0].cancelled())
            if not (self._calls or self._is_served):
                self.is_over = True
                return []
        return await asyncio.wrap_future(self.submit(self._end))

    def _end(self) -> list[str]:
        self.is_over = True
        return self._left_open


def _open_transactions(own: Connections) -> list[str]:
    try:
        return own.with_transaction()
    except Exception:  # a call has closed the driver's connection
        return []


class CurrentLane(Executor):
    """Has the lane of the attempt that submits a call carry it out.

    ``lane()`` returns that lane; most attempts have no call.
    """

    def __init__(self, lane: Callable[[], Lane]) -> None:
        self._lane = lane

    def submit(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        return self._lane().submit(function, *args, **kwargs)

    def enter(self) -> ThreadSensitiveContext:
        """Let ``sync_to_async`` use this in the current context; it does while the result lives."""
        sensitive = ThreadSensitiveContext()
        SyncToAsync.context_to_thread_executor[sensitive] = self
        SyncToAsync.thread_sensitive_context.set(sensitive)
        return sensitive


class ClosingExecutor(ThreadPoolExecutor):
    """Threads that close the database connections which a call has opened.

    ``caller()`` returns the attempt that a call belongs to, or None.
    """

    def __init__(self, count: int, name: str, caller: Callable[[], Caller | None]) -> None:
        super().__init__(count, thread_name_prefix=name)
        self._caller = caller

    def submit(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        caller = self._caller()
        future = super().submit(_closing, caller, partial(function, *args, **kwargs))
        if caller is not None:
            caller.calls.append(future)
        return future


def _closing(caller: Caller | None, call: Callable[[], R]) -> R:
    if caller is not None:
        caller.begin_call()
    try:
        return call()
    finally:
        with contextlib.suppress(Exception):
            connections.close_all()
        if caller is not None:
            caller.end_call()

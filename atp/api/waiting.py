"""Responses to ``?wait=``, which wait for an Instance to end, and limits on waiting clients."""

import asyncio
import math
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from typing import Any

from asgiref.sync import SyncToAsync, sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest, HttpResponse

from ..conf import settings
from ..models import Instance
from ..reports.ends import ends
from .schema import LONGEST_WAIT

# Seconds between two checks for a client that has hung up.
HANG_UP_CHECK_EVERY = 1.0
# The number of requests with ``?wait=`` that may read the database at the same time, before and
# after their wait. The number is low, because each of them needs a database connection.
CONCURRENT_READS = 2
# Seconds from ``take`` to ``keep``. If the client hangs up in between, nobody frees its slot, so
# the slot expires.
BEGINS_WITHIN = 5.0
# The least seconds until a refused client may try again, unless it wants to wait for less.
SOONEST = 5
# The number of refused clients that may come back to one process in a second.
RATE = 4

# Responses that wait.
#
# A view returns such a response at once. The response waits when Django's handler renders it, so
# the view has ended while the client waits. Under ASGI the handler awaits ``render``, although the
# views of REST framework are synchronous.


def waiting_response(
    request: Any, instance: Instance, seconds: float, answer: Callable[[], HttpResponse]
) -> HttpResponse | None:
    """Return a response that waits until an Instance has ended, and then renders ``answer()``.

    The response waits for at most ``seconds``. Return None if too many clients are waiting
    already, or if the server has a single thread. ``request`` is Django's, with its user.
    """
    kind: type[WaitingResponse]
    if isinstance(request, ASGIRequest):
        kind, slots = AwaitingResponse, ASYNC_SLOTS
    elif request.META.get("wsgi.multithread"):
        kind, slots = SleepingResponse, THREAD_SLOTS
    else:  # a process with one thread could not serve other clients meanwhile
        return None
    slot = slots.take(request.user)
    return None if slot is None else kind(request, instance, seconds, answer, slots, slot)


class WaitingResponse(HttpResponse):
    """A response that uses ``slot``, one of ``slots``, while it waits for an Instance to end."""

    def __init__(
        self,
        request: HttpRequest,
        instance: Instance,
        seconds: float,
        answer: Callable[[], HttpResponse],
        slots: "Slots",
        slot: object,
    ) -> None:
        super().__init__()
        self._request, self._key = request, instance.pk
        self._deadline = time.monotonic() + seconds
        self._answer = answer
        self._slots, self._slot = slots, slot

    @property
    def _seconds_left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())


class SleepingResponse(WaitingResponse):
    """A response that waits in the thread of its request, under WSGI."""

    def render(self) -> HttpResponse:
        with THREADS.one():
            self._sleep()
            return self._answer()

    def _sleep(self) -> None:
        token = None
        try:
            self._slots.keep(self._slot, self._seconds_left)
            ended = threading.Event()
            token = ends.watch(self._key, ended.set)
            has_hung_up = _hang_up_check(self._request.META)
            while self._seconds_left and not has_hung_up():
                if ended.wait(min(self._seconds_left, HANG_UP_CHECK_EVERY)):
                    break
        finally:
            ends.forget(token)
            self._slots.free(self._slot)


class AwaitingResponse(WaitingResponse):
    """A response that waits in the event loop, under ASGI.

    Django cancels the response when the client disconnects.
    """

    async def render(self) -> HttpResponse:
        token, loop, ended = None, asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(ended.set)

        try:
            self._slots.keep(self._slot, self._seconds_left)
            token = ends.watch(self._key, wake)
            _end_thread_of_request()
            async with asyncio.timeout(self._seconds_left):
                await ended.wait()
        except TimeoutError:
            pass  # answer with the Instance as it is now
        finally:
            ends.forget(token)
            self._slots.free(self._slot)
        return await sync_to_async(self._answer)()


def _hang_up_check(environ: dict[str, Any]) -> Callable[[], bool]:
    """Return a function that returns True if the client has disconnected.

    WSGI servers do not report this, but gunicorn passes the client's socket. Without a socket, the
    function always returns False.
    """
    socket, flag = environ.get("gunicorn.socket"), getattr(select, "POLLRDHUP", None)
    if socket is None or flag is None:
        return lambda: False
    poll = select.poll()
    poll.register(socket, flag)
    return lambda: bool(poll.poll(0))


def _end_thread_of_request() -> None:
    """End the thread that ran a request's synchronous code. Later code gets a new thread.

    Otherwise Django would keep one thread for each waiting request. If a synchronous middleware
    runs in the thread, this function does not end the thread.
    """
    context = SyncToAsync.thread_sensitive_context.get(None)
    if context is None or getattr(context, "_executor", None) is not None:
        return
    executor = getattr(SyncToAsync, "context_to_thread_executor", {}).pop(context, None)
    if executor is not None:
        executor.shutdown(wait=False)


# Limits on waiting clients, per process and per user, and on the threads of their requests. The
# threads of refused requests count too.


class PerProcess:
    """The base class of objects that every forked process empties by calling ``_begin``."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()


class Slots(PerProcess):
    """A limited number of slots for clients that wait.

    ``total`` and ``per_user`` are the names of the settings with the limits. A slot expires after
    its time, even if nobody frees the slot.
    """

    def __init__(self, total: str, per_user: str) -> None:
        self._total, self._per_user = total, per_user
        super().__init__()

    def _begin(self) -> None:
        super()._begin()
        # By token: the user, and the time when the slot expires.
        self._used: dict[object, tuple[object, float]] = {}

    def take(self, user: Any) -> object | None:
        """Take a slot for a user, and return a token for the slot, or None if no slot is free."""
        key = type(user), getattr(user, "pk", None) or str(user)
        now = time.monotonic()
        with self._lock:
            self._used = {token: slot for token, slot in self._used.items() if slot[1] > now}
            used_by_user = sum(1 for owner, _ in self._used.values() if owner == key)
            if len(self._used) >= getattr(settings, self._total):
                return None
            if used_by_user >= getattr(settings, self._per_user):
                return None
            token = object()
            self._used[token] = key, now + BEGINS_WITHIN
            return token

    def keep(self, token: object, seconds: float) -> None:
        """Keep the slot with this token for this number of seconds from now."""
        with self._lock:
            if token in self._used:
                key, _ = self._used[token]
                self._used[token] = key, time.monotonic() + seconds

    def free(self, token: object) -> None:
        """Free the slot with this token. Do nothing if the slot is free already."""
        with self._lock:
            self._used.pop(token, None)

    def __len__(self) -> int:
        """Return the number of slots in use."""
        return len(self._used)


THREAD_SLOTS = Slots("MAX_WAITERS", "MAX_WAITERS_PER_USER")
ASYNC_SLOTS = Slots("MAX_ASYNC_WAITERS", "MAX_ASYNC_WAITERS_PER_USER")


class Threads(PerProcess):
    """A counter for the threads of this process that serve requests with ``?wait=``."""

    def _begin(self) -> None:
        super()._begin()
        self._count = 0

    @contextmanager
    def one(self, most: float = math.inf) -> Iterator[bool]:
        """Count this thread as long as the context lasts, and yield True.

        If ``most`` threads are counted already, do not count this one, and yield False.
        """
        with self._lock:
            is_counted = self._count < most
            self._count += is_counted
        try:
            yield is_counted
        finally:
            with self._lock:
                self._count -= is_counted


THREADS = Threads()


def most_threads() -> int:
    """Return the thread limit: one per waiting client, plus CONCURRENT_READS."""
    return settings.MAX_WAITERS + CONCURRENT_READS


_reads = threading.BoundedSemaphore(CONCURRENT_READS)


@contextmanager
def limited_reads() -> Iterator[None]:
    """A context that only CONCURRENT_READS threads can be in at a time, to read the database.

    At its end it closes those connections of the thread that have expired or are broken.
    """
    with _reads:
        try:
            yield
        finally:
            for connection in _idle_connections():
                connection.close_if_unusable_or_obsolete()


def close_connections() -> None:
    """Close this thread's idle database connections, including persistent ones."""
    for connection in _idle_connections():
        connection.close()


def _idle_connections() -> list[Any]:
    """Return this thread's open database connections that are not in a transaction."""
    opened = connections.all(initialized_only=True)
    return [connection for connection in opened if not connection.in_atomic_block]


class Turns(PerProcess):
    """The times at which rejected clients may try again.

    The times are spread out, so that the clients do not all come back at once.
    """

    def _begin(self) -> None:
        super()._begin()
        self._last = 0.0

    def take(self, seconds: float = LONGEST_WAIT) -> int:
        """Return after how many seconds a client should try again: from 1 to ``seconds``."""
        now = time.monotonic()
        with self._lock:
            turn = max(now + SOONEST, self._last + 1 / RATE)
            self._last = min(turn, now + LONGEST_WAIT)
            return max(1, ceil(min(seconds, self._last - now)))


turns = Turns()

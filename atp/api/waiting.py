"""`?wait=`: responses that wait for an end, and limits on those who wait."""

import asyncio
import math
import os
import select
import threading
import time
from contextlib import contextmanager
from math import ceil

from asgiref.sync import SyncToAsync, sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpResponse

from ..conf import settings
from ..reports.ends import ends
from .schema import LONGEST_WAIT

# Responses that wait for the end of an Instance.
#
# A view returns such a response at once, and Django's handler renders it: that is where it
# waits. So the view has ended while the client waits. Under ASGI the handler awaits ``render``,
# although the views of REST framework are synchronous.

# Seconds between two checks whether the client has hung up.
LOOK_EVERY = 1.0


def pending(request, instance, seconds, answer):
    """Return a response that renders ``answer()`` after an Instance's end, or after ``seconds``.

    Return None if too many clients wait already, or if the server has a single thread.
    ``request`` is Django's, with its user.
    """
    if isinstance(request, ASGIRequest):
        kind, slots = Awaiting, ASYNC
    elif request.META.get("wsgi.multithread"):
        kind, slots = Sleeping, IN_THREADS
    else:  # a process with one thread would serve nobody else meanwhile
        return None
    slot = slots.take(request.user)
    return None if slot is None else kind(request, instance, seconds, answer, slots, slot)


class Pending(HttpResponse):
    def __init__(self, request, instance, seconds, answer, slots, slot):
        super().__init__()
        self._request, self._key = request, instance.pk
        self._deadline = time.monotonic() + seconds
        self._answer = answer
        self._slots, self._slot = slots, slot

    @property
    def _left(self):
        return max(0.0, self._deadline - time.monotonic())


class Sleeping(Pending):
    """A response that sleeps in the thread of its request."""

    def render(self):
        with THREADS.one():
            self._sleep()
            return self._answer()

    def _sleep(self):
        token = None
        try:
            self._slots.keep(self._slot, self._left)
            ended = threading.Event()
            token = ends.watch(self._key, ended.set)
            has_hung_up = _hang_up(self._request.META)
            while self._left and not has_hung_up() and not ended.wait(min(self._left, LOOK_EVERY)):
                pass
        finally:
            ends.forget(token)
            self._slots.free(self._slot)


class Awaiting(Pending):
    """A response that waits in the event loop. Django cancels it when the client hangs up."""

    async def render(self):
        token, loop, ended = None, asyncio.get_running_loop(), asyncio.Event()

        def call():
            if not loop.is_closed():
                loop.call_soon_threadsafe(ended.set)

        try:
            self._slots.keep(self._slot, self._left)
            token = ends.watch(self._key, call)
            _let_thread_go()
            async with asyncio.timeout(self._left):
                await ended.wait()
        except TimeoutError:
            pass  # answer with the Instance as it is now
        finally:
            ends.forget(token)
            self._slots.free(self._slot)
        return await sync_to_async(self._answer)()


def _hang_up(environ):
    """Return a function that tells whether the client has hung up.

    WSGI cannot tell, but gunicorn passes its socket. Without one the function returns False.
    """
    socket, flag = environ.get("gunicorn.socket"), getattr(select, "POLLRDHUP", None)
    if socket is None or flag is None:
        return lambda: False
    poll = select.poll()
    poll.register(socket, flag)
    return lambda: bool(poll.poll(0))


def _let_thread_go():
    """End the thread that has run the synchronous code of the request; later code gets a new one.

    Django keeps one thread for each request. If a synchronous middleware runs in the thread,
    the thread stays.
    """
    context = SyncToAsync.thread_sensitive_context.get(None)
    if context is None or getattr(context, "_executor", None) is not None:
        return
    executor = getattr(SyncToAsync, "context_to_thread_executor", {}).pop(context, None)
    if executor is not None:
        executor.shutdown(wait=False)


# Limits on the clients that wait for the end of an Instance: per process and per user.
#
# The threads of their requests are limited too, those of refused requests included.

# A request that waits reads the database before and afterwards. So many may do so at once,
# whatever the number of threads, since each needs a connection.
LOOKS = 2
# Seconds from ``take`` to ``keep``. If the client hangs up in between, nobody frees its slot:
# the slot expires.
BEGINS_WITHIN = 5.0


class PerProcess:
    """A base of objects that start empty in each forked process: ``_begin`` is called again."""

    def __init__(self):
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self):
        self._lock = threading.Lock()


class Slots(PerProcess):
    """The slots of the clients that wait; ``total`` and ``per_user`` name the settings for them.

    A slot expires when its time is over, even if nobody frees it.
    """

    def __init__(self, total, per_user):
        self._total, self._per_user = total, per_user
        super().__init__()

    def _begin(self):
        super()._begin()
        self._taken = {}

    def take(self, user):
        """Return the token of a slot, for :meth:`keep` and :meth:`free`; None if all are taken."""
        key = type(user), getattr(user, "pk", None) or str(user)
        now = time.monotonic()
        with self._lock:
            self._taken = {t: taken for t, taken in self._taken.items() if taken[1] > now}
            own = sum(1 for owner, _ in self._taken.values() if owner == key)
            if len(self._taken) >= getattr(settings, self._total):
                return None
            if own >= getattr(settings, self._per_user):
                return None
            token = object()
            self._taken[token] = key, now + BEGINS_WITHIN
            return token

    def keep(self, token, seconds):
        """Keep a slot for so many seconds, while its client waits."""
        with self._lock:
            if token in self._taken:
                key, _ = self._taken[token]
                self._taken[token] = key, time.monotonic() + seconds

    def free(self, token):
        """Free a slot. Do nothing if it is free already."""
        with self._lock:
            self._taken.pop(token, None)

    def __len__(self):
        """Return the number of slots that are taken."""
        return len(self._taken)


IN_THREADS = Slots("MAX_WAITERS", "MAX_WAITERS_PER_USER")
ASYNC = Slots("MAX_ASYNC_WAITERS", "MAX_ASYNC_WAITERS_PER_USER")


class Threads(PerProcess):
    """The number of threads in this process that serve requests with ``?wait=``."""

    def _begin(self):
        super()._begin()
        self._count = 0

    @contextmanager
    def one(self, most=math.inf):
        """Count this thread, unless ``most`` are counted already. Yield whether it is counted."""
        with self._lock:
            is_counted = self._count < most
            self._count += is_counted
        try:
            yield is_counted
        finally:
            with self._lock:
                self._count -= is_counted


THREADS = Threads()


def most_threads():
    """Return the limit of threads: those that wait, and LOOKS more that read the database."""
    return settings.MAX_WAITERS + LOOKS


_looks = threading.BoundedSemaphore(LOOKS)


@contextmanager
def look():
    """Let LOOKS threads at a time read the database, and close expired connections afterwards."""
    with _looks:
        try:
            yield
        finally:
            for connection in _free_connections():
                connection.close_if_unusable_or_obsolete()


def let_connections_go():
    """Close the connections of this thread, persistent ones too."""
    for connection in _free_connections():
        connection.close()


def _free_connections():
    """Return the open connections of this thread that are not in a transaction."""
    found = connections.all(initialized_only=True)
    return [connection for connection in found if not connection.in_atomic_block]


# The least seconds until a client may ask again, unless it wants to wait for less.
SOONEST = 5
# The number of clients that may ask one process again in a second.
RATE = 4


class Turns(PerProcess):
    """The turns of refused clients: spread out, so that they do not all come back at once."""

    def _begin(self):
        super()._begin()
        self._last = 0.0

    def take(self, seconds=LONGEST_WAIT):
        """Return the seconds after which the client shall ask again: from 1 to ``seconds``."""
        now = time.monotonic()
        with self._lock:
            turn = max(now + SOONEST, self._last + 1 / RATE)
            self._last = min(turn, now + LONGEST_WAIT)
            return max(1, ceil(min(seconds, self._last - now)))


turns = Turns()

"""Answers that are made after the end of an Instance.

A view returns them at once, and Django's handler renders them: so everything that the
view does is over while a client waits, and a request under ASGI is awaited, although
the views of REST framework are synchronous.
"""

import asyncio
import select
import threading
import time

from asgiref.sync import SyncToAsync, sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse

from ...reports.ends import ends
from .slots import ASYNC, IN_THREADS, THREADS

# So often it is looked whether the client has hung up, in seconds.
LOOK_EVERY = 1.0


def pending(request, instance, seconds, answer):
    """Return a response that is rendered as ``answer()`` after an Instance's end, or in time.

    ``request`` is Django's, with the user who was found. It is None if no more may wait.
    """
    if isinstance(request, ASGIRequest):
        kind, slots = Awaiting, ASYNC
    elif request.META.get("wsgi.multithread"):
        kind, slots = Sleeping, IN_THREADS
    else:  # the process serves nobody else meanwhile
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
    """Sleeps in the thread of the request."""

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
    """Awaits the end in the event loop. Django cancels this when the client hangs up."""

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
            pass  # it is answered with as it is
        finally:
            ends.forget(token)
            self._slots.free(self._slot)
        return await sync_to_async(self._answer)()


def _hang_up(environ):
    """Return a function that tells whether the client has hung up, as far as that is known.

    WSGI has no way to tell; gunicorn shows its socket.
    """
    socket, flag = environ.get("gunicorn.socket"), getattr(select, "POLLRDHUP", None)
    if socket is None or flag is None:
        return lambda: False
    poll = select.poll()
    poll.register(socket, flag)
    return lambda: bool(poll.poll(0))


def _let_thread_go():
    """End the thread in which the request's synchronous parts have run; the next gets another.

    Django keeps one for each request. It stays where a synchronous middleware stands in it.
    """
    context = SyncToAsync.thread_sensitive_context.get(None)
    if context is None or getattr(context, "_executor", None) is not None:
        return
    executor = getattr(SyncToAsync, "context_to_thread_executor", {}).pop(context, None)
    if executor is not None:
        executor.shutdown(wait=False)

"""Responses that wait for the end of an Instance.

A view returns such a response at once, and Django's handler renders it: that is where it
waits. So the view has ended while the client waits. Under ASGI the handler awaits ``render``,
although the views of REST framework are synchronous.
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

"""Running a handler that is a coroutine function, in an event loop of its own for each attempt.

:func:`asgiref.sync.async_to_sync` runs the loop in a thread beside the main one. Meanwhile the
main thread runs the functions that the coroutine gives to ``sync_to_async``, and Django's
asynchronous ORM. So they use the worker's own database connections.
"""

import asyncio
from contextlib import suppress

from asgiref.sync import async_to_sync

from ...exceptions import Interrupted

# The end of a handler that has not ended.
_NOT_ENDED = (None, None)


class CoroutineCall:
    """A function that calls a coroutine handler, once. ``cancel()`` ends it where it awaits."""

    def __init__(self, handler):
        self._handler = handler
        self._is_cancelled = False
        self._loop = self._task = None
        # The value that the handler has returned, and the exception that it has raised.
        self._end = _NOT_ENDED

    def __call__(self, *args, **kwargs):
        """Return the handler's value, or raise its exception.

        Raises Interrupted if it ended because it was cancelled.
        """
        async_to_sync(self._run)(args, kwargs)
        value, error = self._end
        if isinstance(error, asyncio.CancelledError) and self._is_cancelled:
            raise Interrupted from None
        if error is not None:
            raise error
        return value

    def cancel(self):
        """Cancel the handler. The main thread calls this, perhaps in a signal handler."""
        self._is_cancelled = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has just ended
                self._loop.call_soon_threadsafe(self._task.cancel)

    async def _run(self, args, kwargs):
        self._task = asyncio.ensure_future(self._guarded(args, kwargs))
        self._loop = asyncio.get_running_loop()
        if self._is_cancelled:
            self._task.cancel()
        # A cancel may come too late, when the handler has just ended.
        with suppress(asyncio.CancelledError):
            await self._task
        if self._end is _NOT_ENDED and self._task.cancelled():
            self._end = None, asyncio.CancelledError()

    async def _guarded(self, args, kwargs):
        """Run the handler and keep its end: a SystemExit that left the task would end the loop."""
        try:
            value = await self._handler(*args, **kwargs)
        except BaseException as error:
            self._end = None, error
        else:
            self._end = value, None

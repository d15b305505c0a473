"""Running a handler that is a coroutine function: in an event loop of its own, for one attempt.

The loop runs in a thread beside the main one, as :func:`asgiref.sync.async_to_sync` has it:
meanwhile the main thread runs what the coroutine gives to ``sync_to_async``, Django's
asynchronous ORM included, so that the database connections are the worker's own.
"""

import asyncio
from contextlib import suppress

from asgiref.sync import async_to_sync

from ...exceptions import Interrupted


class CoroutineCall:
    """A call of a handler, to be called once. ``cancel()`` ends it wherever it awaits."""

    def __init__(self, handler):
        self._handler = handler
        self._is_cancelled = False
        self._loop = self._task = None
        # What the handler has returned, and what it has raised.
        self._end = None, None

    def __call__(self, *args, **kwargs):
        """Return what the handler returns, and raise what it raises.

        Interrupted if it ends because it was cancelled.
        """
        async_to_sync(self._run)(args, kwargs)
        value, error = self._end
        if isinstance(error, asyncio.CancelledError) and self._is_cancelled:
            raise Interrupted from None
        if error is not None:
            raise error
        return value

    def cancel(self):
        """Cancel it, from the main thread; where it is a signal that asks for that, too."""
        self._is_cancelled = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self._task.cancel)

    async def _run(self, args, kwargs):
        self._task = asyncio.ensure_future(self._guarded(args, kwargs))
        self._loop = asyncio.get_running_loop()
        if self._is_cancelled:
            self._task.cancel()
        # A cancel may come too late, when the handler has just ended.
        with suppress(asyncio.CancelledError):
            await self._task
        if self._end == (None, None) and self._task.cancelled():
            self._end = None, asyncio.CancelledError()

    async def _guarded(self, args, kwargs):
        """Keep how it ends: SystemExit, raised in a task, would end the loop with it."""
        try:
            value = await self._handler(*args, **kwargs)
        except BaseException as error:
            self._end = None, error
        else:
            self._end = value, None

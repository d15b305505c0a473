"""Running a handler that is a coroutine function, in a new event loop for each attempt.

The loop runs in a thread beside the main one. Meanwhile :func:`asgiref.sync.async_to_sync` lets the
main thread run the functions that the coroutine gives to ``sync_to_async``, and Django's
asynchronous ORM. So they use the worker's own database connections.

The end of the handler is the end of the attempt. What the handler has left in its loop is cancelled
and gets a short grace; after that the thread of the loop is abandoned. Threads of the loop's
executor are not waited for.
"""

import asyncio
import threading
from contextlib import suppress
from contextvars import copy_context

from asgiref.sync import AsyncToSync, _restore_context, async_to_sync

from ...exceptions import Interrupted

# The end of a handler that has not ended.
_NOT_ENDED = (None, None)
# In seconds, for what a handler has left in its loop: it may clean up.
GRACE = 1.0
# The threads whose loops have not ended within the grace.
_abandoned = []


def is_any_abandoned():
    """Tell whether the loop of an earlier handler still runs in this process."""
    _abandoned[:] = [thread for thread in _abandoned if thread.is_alive()]
    return bool(_abandoned)


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
        """Wait for the handler. Its own loop is another one: this one can always end."""
        outer = asyncio.get_running_loop()
        # What the main thread runs for a loop: sync_to_async finds it by the loop.
        main_thread = AsyncToSync.loop_thread_executors[outer]
        ended, closed = asyncio.Event(), asyncio.Event()

        def tell(event):
            with suppress(RuntimeError):  # nobody waits any more
                outer.call_soon_threadsafe(event.set)

        def run():
            # asgiref keeps its Local values, such as Django's language, apart for each thread.
            _restore_context(context)
            loop = asyncio.new_event_loop()
            AsyncToSync.loop_thread_executors[loop] = main_thread
            try:
                self._run_handler(loop, args, kwargs)
                tell(ended)
                loop.run_until_complete(_end_leftovers(loop))
            finally:
                del AsyncToSync.loop_thread_executors[loop]
                loop.close()
                tell(ended)
                tell(closed)

        context = copy_context()
        thread = threading.Thread(target=run, name="atp-coroutine", daemon=True)
        thread.start()
        await ended.wait()
        try:
            await asyncio.wait_for(closed.wait(), GRACE)
        except TimeoutError:
            _abandoned.append(thread)

    def _run_handler(self, loop, args, kwargs):
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self._supervise(args, kwargs))
        except BaseException as error:  # of a task beside the handler, as SystemExit
            if self._end is _NOT_ENDED:
                self._end = None, error

    async def _supervise(self, args, kwargs):
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


async def _end_leftovers(loop):
    """Cancel the tasks that a handler has left, and close its asynchronous generators."""
    tasks = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            message = "a task that a handler had left raised when it was cancelled"
            loop.call_exception_handler({"message": message, "exception": error, "task": task})
    await loop.shutdown_asyncgens()

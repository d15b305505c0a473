"""Running a handler, from its inputs to its response; coroutines."""

import asyncio
import contextlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from contextvars import copy_context
from dataclasses import replace
from functools import cache, partial
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from asgiref.sync import AsyncToSync, _restore_context, async_to_sync, iscoroutinefunction
from django.core.files.base import ContentFile
from django.core.files.storage import storages
from django.core.signals import got_request_exception
from django.db import Error
from django.dispatch import Signal

from ... import messages, middleware, signals
from ...authoring.context import Context, Output, storage_path, store_file
from ...authoring.logs import clear_variables, describe_exception, exception_trace
from ...conf import settings
from ...exceptions import (
    CorruptData,
    IncompatibleInputs,
    Interrupted,
    NoResult,
    NotSerializable,
    Unusable,
)
from ...models import Response, Task
from ...operations.registry import Declaration, registry
from ...payload import binding, codec
from ...payload.binding import adapt_arguments
from ...payload.json import holds_bytes
from ...store.values import Attempt, ResponseData
from ...text import exception_words
from ..log_handlers import RAISED, Handle, complaints, guarded, inside, is_inside, loggers
from ..outcomes import DONE, Kind, Outcome
from ..shared_memory import Page
from . import endings
from .interruption import Interruption, Never

if TYPE_CHECKING:
    from .transactions import Transaction

# Calls of the project's log handlers for ATP's own lines in a worker: guarded, and bounded.
#
# A worker calls the handlers synchronously, since error reporters need the exception and the
# variables of the attempt. A timer (SIGALRM) interrupts a handler that blocks.

# In seconds: handlers are interrupted after LONGEST for one line, and again every AGAIN if they
# go on. Then they get none of ATP's own lines for REST.
LONGEST, AGAIN, REST = 5.0, 0.5, 60.0


class _Cut(BaseException):
    """The handlers took too long. It is no Exception, since logging's handlers catch those."""


class Bounded:
    """The bounded calls of one process. ``time_out(longest)`` is a context manager around each.

    While ``is_left()`` is true, the lines are the task's own, and are left to their loggers.
    """

    def __init__(
        self,
        is_left: Callable[[], bool] = lambda: False,
        time_out: Callable[[float], AbstractContextManager[Any]] = contextlib.nullcontext,
    ) -> None:
        self._is_left = is_left
        self._time_out = time_out
        self._is_armed = False
        self._rests_until, self._skipped = 0.0, 0

    def start(self) -> None:
        """Begin to guard the lines that this process logs, and the calls of :func:`own`."""
        _started[:] = [self]
        loggers.intercept(self._take, self._is_left)

    def _take(self, handle: Handle, logger: logging.Logger, record: logging.LogRecord) -> None:
        self.call(partial(handle, record))

    def call(self, call: Callable[[], object]) -> None:
        """Call the function, interrupt it if it takes too long, and catch what it raises."""
        if is_inside() or threading.current_thread() is not threading.main_thread():
            guarded(call)
            return
        if time.monotonic() < self._rests_until:
            self._skipped += 1
            return
        if self._skipped:
            skipped, self._skipped = self._skipped, 0
            complaints.tell(
                f"lines of ATP that they were not given, as they were too slow: {skipped}"
            )
        with self._time_out(LONGEST + 1):
            self._call(call)

    def _call(self, call: Callable[[], object]) -> None:
        before = signal.signal(signal.SIGALRM, self._cut)
        self._is_armed = True
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, LONGEST, AGAIN)
                with inside():
                    call()
            finally:
                self._is_armed = False
        except _Cut:
            self._rests_until = time.monotonic() + REST
            complaints.tell(
                f"they took over {LONGEST:g} s for a line of ATP in a worker, which gives them "
                f"none for {REST:g} s"
            )
        except BaseException as error:
            complaints.tell(RAISED, error)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            if before is not None:  # one that was not set from Python cannot be set again
                signal.signal(signal.SIGALRM, before)

    def _cut(self, signum: int, frame: FrameType | None) -> None:
        if self._is_armed:
            raise _Cut


_started: list[Bounded] = []


def own(call: Callable[..., object], *arguments: Any) -> None:
    """Call a function that logs for ATP, guarded and bounded; catch what it raises."""
    if _started:
        _started[0].call(partial(call, *arguments))
    else:
        guarded(call, *arguments)


# Protection of attempts from the project's log handlers when ATP itself logs in a worker.


def guard_own_lines(page: Page, slot: int, interruption: Interruption) -> None:
    """Guard the lines that this worker logs, except those of the task's own handler.

    The attempt's deadline is extended by the time that the log handlers take.
    """
    Bounded(lambda: interruption.is_inside, partial(page.unhurried, slot)).start()


# Running a handler that is a coroutine function, in a new event loop for each attempt.
#
# The loop runs in a thread beside the main one. Meanwhile :func:`asgiref.sync.async_to_sync` lets
# the main thread run the functions that the coroutine gives to ``sync_to_async``, and Django's
# asynchronous ORM. So they use the worker's own database connections.
#
# The end of the handler is the end of the attempt. What the handler has left in its loop is
# cancelled and gets a short grace; after that the thread of the loop is abandoned. Threads of the
# loop's executor are not waited for.

# The end of a handler that has not ended.
_NOT_ENDED: tuple[Any, BaseException | None] = (None, None)
# In seconds, for what a handler has left in its loop: it may clean up.
GRACE = 1.0
# The threads whose loops have not ended within the grace.
_abandoned: list[threading.Thread] = []


def is_any_abandoned() -> bool:
    """Tell whether the loop of an earlier handler still runs in this process."""
    if _abandoned:
        _abandoned[:] = [thread for thread in _abandoned if thread.is_alive()]
    return bool(_abandoned)


class CoroutineCall:
    """A function that calls a coroutine handler, once. ``cancel()`` ends it where it awaits."""

    def __init__(self, handler: Callable[..., Awaitable[Any]]) -> None:
        self._handler = handler
        self._is_cancelled = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: Any = None
        # The value that the handler has returned, and the exception that it has raised.
        self._end = _NOT_ENDED

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
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

    def cancel(self) -> None:
        """Cancel the handler. The main thread calls this, perhaps in a signal handler."""
        self._is_cancelled = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has just ended
                self._loop.call_soon_threadsafe(self._task.cancel)

    async def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Wait for the handler. Its own loop is another one: this one can always end."""
        outer = asyncio.get_running_loop()
        # What the main thread runs for a loop: sync_to_async finds it by the loop.
        main_thread = AsyncToSync.loop_thread_executors[outer]
        ended, closed = asyncio.Event(), asyncio.Event()

        def tell(event: asyncio.Event) -> None:
            with suppress(RuntimeError):  # nobody waits any more
                outer.call_soon_threadsafe(event.set)

        def run() -> None:
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

    def _run_handler(
        self, loop: asyncio.AbstractEventLoop, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self._supervise(args, kwargs))
        except BaseException as error:  # of a task beside the handler, as SystemExit
            if self._end is _NOT_ENDED:
                self._end = None, error

    async def _supervise(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._task = asyncio.ensure_future(self._guarded(args, kwargs))
        self._loop = asyncio.get_running_loop()
        if self._is_cancelled:
            self._task.cancel()
        # A cancel may come too late, when the handler has just ended.
        with suppress(asyncio.CancelledError):
            await self._task
        if self._end is _NOT_ENDED and self._task.cancelled():
            self._end = None, asyncio.CancelledError()

    async def _guarded(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run the handler and keep its end: a SystemExit that left the task would end the loop."""
        try:
            value = await self._handler(*args, **kwargs)
        except BaseException as error:
            self._end = None, error
        else:
            self._end = value, None


async def _end_leftovers(loop: asyncio.AbstractEventLoop) -> None:
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


# Running a handler: from its inputs to how it ended.

# Error reporters that hook logging see a handler's exceptions here.
logger = logging.getLogger("atp.worker")


class AroundHandler(Protocol):
    """The context manager around a handler: an :class:`Interruption`, or what stands in for it."""

    def by(self, cancel: Callable[[], object], /) -> "AroundHandler": ...

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...


_NEVER = Never()
# Of a function that is asked for with each of its attempts.
_is_coroutine_function = cache(iscoroutinefunction)


def run(
    attempt: Attempt,
    context: Context,
    transaction: "Transaction | None" = None,
    interruption: AroundHandler = _NEVER,
    is_left_open: Callable[[], object] = bool,
) -> Outcome:
    """Run the handler of a Task; always returns an :class:`Outcome`.

    With a ``transaction`` what it writes is committed together with its end. The handler
    is entered within ``interruption``, which may raise Interrupted in it. Afterwards
    ``is_left_open()`` tells whether it has left another transaction open.
    """
    if signals.handler_started.receivers:
        send_signal(signals.handler_started, context=context, attempt=attempt)
    outcome, error = _ended(
        partial(_call, attempt, context, interruption, is_left_open), transaction
    )
    reported: BaseException | None = None
    if error is not None:
        outcome, reported = read_error(attempt, context, error)
    try:
        report_end(attempt, context, outcome, reported)
    finally:
        if error is not None:
            clear_variables(error)
            # The frames of the traceback refer to this one, which would keep the exception.
            error = reported = None
    return outcome


def read_error(
    attempt: Attempt, context: Context, error: BaseException
) -> tuple[Outcome, BaseException | None]:
    """Return the outcome that an exception means, and the exception to be reported, or None."""
    outcome, reported = endings.outcome_of(attempt, error)
    return _without_secrets(outcome, context), reported


def report_end(
    attempt: Attempt, context: Context, outcome: Outcome, reported: BaseException | None
) -> None:
    """Log the exception of an attempt, if there is one to be reported, and send the signals."""
    if reported is not None:
        own(_log_raised, attempt, context, reported)
        own(_send_exception, reported)
    if signals.handler_ended.receivers:
        facts = {"context": context, "attempt": attempt}
        send_signal(signals.handler_ended, outcome=outcome, exception=reported, **facts)


def _ended(
    call: Callable[[], Outcome], transaction: "Transaction | None"
) -> tuple[Any, BaseException | None]:
    """Return what the call returned, and the exception that it raised, or None.

    This function is part of the exception's traceback. It keeps the exception in no variable that
    outlives it: otherwise both, and all that the handler had, would stay until garbage is
    collected.
    """
    try:
        return (call() if transaction is None else transaction.run(call)), None
    except BaseException as raised:  # SystemExit too: a handler does not end its worker
        return None, raised


def _call(
    attempt: Attempt,
    context: Context,
    interruption: AroundHandler,
    is_left_open: Callable[[], object],
) -> Outcome:
    task_type = registry.handler_of(attempt.type)
    args, kwargs = arguments_of(attempt, context, task_type)
    handler = task_type.handler
    if _is_coroutine_function(handler):
        handler = CoroutineCall(handler)
        interruption = interruption.by(handler.cancel)
    call = partial(handler, context, *args, **kwargs)
    # Most carry nothing, and this is done for each attempt.
    run = middleware.run if attempt.own is None else partial(_carried, attempt)
    with interruption:
        value = run(context, call)
    if is_left_open():
        raise endings.LeftOpen
    if value is None:
        return DONE
    try:
        return Outcome(Kind.FINISHED, response=respond(value, task_type, attempt))
    except NotSerializable as error:
        raise Unusable from error


def arguments_of(
    attempt: Attempt, context: Context, task_type: Declaration
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the arguments of the handler. Raises Unusable and IncompatibleInputs."""
    try:
        stored = attempt.inputs
        inputs = codec.decode(stored)
        if not codec.is_untagged(stored):
            if codec.may_have_results(stored):  # of other nodes of its graph
                inputs = context.results.resolved(inputs)
            if codec.may_have_references(stored):
                from ...authoring.fetching import fetched  # few workers need the modules of HTTP

                inputs = fetched(task_type, inputs)
        (args, kwargs), why = adapt_arguments(
            task_type.signatures, task_type.adapters, inputs, task_type.sensitive
        )
    except (CorruptData, NoResult) as error:
        raise Unusable from error
    if task_type.sensitive:
        context.secrets = binding.sensitive_texts({**kwargs, "*": list(args)}, task_type.sensitive)
    if why:
        raise IncompatibleInputs(messages.incompatible_inputs(settings.RELEASE, why))
    return args, kwargs


def _without_secrets(outcome: Outcome, context: Context) -> Outcome:
    """Return the outcome of an attempt that raised, with masks for sensitive inputs."""
    if not _has_secrets(context):
        return outcome
    failed = outcome.failed
    if failed is not None:
        failed = failed._replace(title=context.hidden(failed.title))
    return replace(outcome, message=context.hidden(outcome.message), failed=failed)


def _has_secrets(context: Context | None) -> bool:
    return context is not None and bool(context.secrets)


def _carried(attempt: Attempt, context: Context, call: Callable[[], Any]) -> Any:
    with middleware.restore_context(attempt.carried):
        return middleware.run(context, call)


def _log_raised(attempt: Attempt, context: Context, error: BaseException) -> None:
    values = {"type": attempt.type, "instance": attempt.uuid, "attempt": attempt.number}
    extra = {"fact": "raised", "values": values}
    if _has_secrets(context):
        told = context.hidden(describe_exception(error))
        logger.error("%s %s raised\n%s", attempt.type, attempt.uuid, told, extra=extra)
        return
    logger.error(
        "%s %s raised",
        attempt.type,
        attempt.uuid,
        exc_info=(type(error), error, exception_trace(error)),
        extra=extra,
    )


def _send_exception(error: BaseException) -> None:
    trace = exception_trace(error)
    try:
        raise error
    except BaseException:  # receivers look at sys.exc_info()
        send_signal(got_request_exception, request=None)
    finally:
        # Not with this function, whose callers have the exception in their variables. Its class
        # may define with_traceback().
        BaseException.with_traceback(error, trace)


def send_signal(signal: Signal, **facts: Any) -> None:
    """Send a signal. Receivers look at exceptions of the application, and may raise anything."""
    try:
        signal.send_robust(sender=run, **facts)
    except BaseException:
        with contextlib.suppress(BaseException):
            logger.warning("a receiver raised %s", describe_exception(sys.exception()))  # type: ignore[arg-type]


# Turning the value that a handler returned into its stored Response.

# The number of attempts before this one whose stored responses are looked for.
MOST_LOST = 20


def respond(value: Any, task_type: Declaration, attempt: Attempt) -> ResponseData | None:
    """Return the :class:`ResponseData` of a returned value; None for None.

    The worker writes a large response into Django's storage itself, so that the dispatcher
    never has to carry it. If nobody would read that, since the Type keeps no FINISHED Instances,
    return None too. Raises NotSerializable.
    """
    if value is None:
        return None
    content_type, body = render(value, task_type)
    if len(body) <= settings.MAX_RESPONSE_INLINE:
        return ResponseData(content_type=content_type, data=body, size=len(body))
    return stored_response(content_type, body, task_type, attempt)


def stored_response(
    content_type: str, body: bytes, task_type: Declaration, attempt: Attempt
) -> ResponseData | None:
    """Store a large response; see :func:`respond`."""
    if not registry.keeps(task_type.identifier) and not _is_awaited(attempt):
        return None  # it would be removed with the Instance; rendering has checked the value
    if attempt.lost:
        _forget_lost(attempt)
    path = storage_path(attempt.uuid, attempt.number, "response")
    stored = store_file(path, ContentFile(body))
    return ResponseData(content_type=content_type, data=None, file=stored, size=len(body))


def _is_awaited(attempt: Attempt) -> bool:
    """Whether other nodes of a graph, or hooks, may read the response."""
    rows = Task.objects.using(settings.DATABASE).filter(pk=attempt.instance)
    try:
        return rows.filter(waits__isnull=False).exists()
    except Error:
        return True


def _forget_lost(attempt: Attempt) -> None:
    """Remove the responses that lost attempts have stored: no row names them."""
    # The database and the storage may fail in their own ways; then a file is left.
    with suppress(Exception):
        storage = storages[settings.STORAGE]
        rows = Response.objects.using(settings.DATABASE).filter(pk=attempt.instance)
        named = {path for row in rows for path in row.stored_paths}
        for earlier in range(max(1, attempt.number - MOST_LOST), attempt.number):
            path = storage_path(attempt.uuid, earlier, "response")
            if path not in named:  # a handler may publish a file of this name
                storage.delete(path)


def render(value: Any, task_type: Declaration) -> tuple[str, bytes]:
    """Return content type and body of a returned value. Raises NotSerializable."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        value = Output(value)  # type: ignore[arg-type]
    if isinstance(value, Output):
        return _raw(value)
    payload = codec.encode(value, format=task_type.serializer, what="The response")
    kinds = {codec.JSON: "application/json", codec.PICKLE: codec.PICKLE_CONTENT_TYPE}
    return kinds[payload.format], payload.data.encode()


def _raw(output: Output) -> tuple[str, bytes]:
    """Return content type and body of text or bytes. Raises NotSerializable."""
    content = output.content
    if isinstance(content, memoryview) and not holds_bytes(content):
        raise NotSerializable("The response is a memoryview of something else than bytes in a row.")
    try:
        if isinstance(content, str):
            return output.content_type or "text/plain; charset=utf-8", str.encode(content)
        return output.content_type or "application/octet-stream", bytes(content)
    # Text that is not valid Unicode, or a subclass with code that may raise anything.
    except Exception as error:
        raise NotSerializable(
            f"The response cannot be written: {exception_words(error)}."
        ) from error

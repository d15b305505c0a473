"""A loop: a process that runs many attempts of coroutine functions beside each other.

To the dispatcher and the supervisor, each of its places is a worker. Whenever a step of a coroutine
runs, shared memory says which attempt it belongs to. So the supervisor knows which one blocks the
loop.
"""

import asyncio
import contextlib
import contextvars
import logging
import os
import shutil
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NoReturn, TypeVar

from django.db import connections

from ... import folders, messages, middleware, signals
from ...authoring.context import Context, LogCapture
from ...authoring.logs import clear_variables
from ...authoring.loop_context import LoopContext
from ...conf import settings
from ...exceptions import Interrupted, NotSerializable, Unusable
from ...operations.registry import registry
from ...payload import codec
from ...store.values import Attempt, ResponseData
from .. import protocol
from ..options import hostname
from ..outcomes import DONE, Kind, Outcome, cancel_grace
from ..processes import uptime
from ..protocol import Channel, Closed, Inherited, packed_end, unpacked
from ..shared_memory import CUT, HEARD, NEVER, NOT_CUT, Page, Tokens
from . import endings, execution
from .interruption import SIGNAL
from .threads import CallThreads, ClosingExecutor, CurrentLane, Lane
from .transactions import Checkpoints
from .worker import (
    MOST_IN_RING,
    be_a_worker,
    open_root_logger,
    reason_to_retire,
    say_stray,
    share_caches,
)

# In seconds, for what a handler has left in the loop when it has ended: it may clean up.
GRACE = 1.0
# The dispatcher is called within this many seconds of an end, though tasks are ahead.
CALL_WITHIN = 0.02
# The most threads that fetch inputs at a time, and that run what handlers give to other threads
# than those of their lanes.
FETCHING, OTHER_THREADS = 16, 32

R = TypeVar("R")

logger = logging.getLogger("atp.worker")


class Run:
    """An attempt that runs at a place. ``task`` is None until its coroutine has begun.

    ``started`` is the time of its first step. Before that, it is when the place took it.
    """

    def __init__(self, place: "Place", attempt: Attempt, started: float) -> None:
        self.place = place
        self.attempt = attempt
        self.started = started
        self.context: LoopContext | None = None
        self.task: asyncio.Task[None] | None = None
        # When its time is out, on the uptime clock.
        self.due = NEVER
        # What the attempt does in threads: in its lane, and otherwise.
        self.lane: Lane | None = None
        self.calls: list[Future[Any]] = []
        self._calls_now, self._lock = 0, threading.Lock()
        # The tasks that the handler has started.
        self.children: list[asyncio.Task[Any]] = []
        # Why it was cancelled: INTERRUPTED, TIMED_OUT, or None.
        self.cut_short: Kind | None = None
        # Whether the handler, or what comes before it, may be cancelled now. A task that is
        # cancelled before its first step would never report an end.
        self.is_open = False
        self.is_over = False

    @property
    def has_work(self) -> bool:
        """Whether it has begun anything in the loop or in threads that it has not waited for."""
        return bool(self.children or self.calls) or self.lane is not None

    def cancel(self, why: Kind) -> None:
        """Cancel the handler where it awaits, unless it has ended."""
        if self.cut_short is not None or self.is_over:
            return
        self.cut_short = why
        # Before its first step, and once the handler has ended, what remains is the attempt's own.
        self.place.note_cut(CUT if self.is_open else HEARD)
        if self.is_open and self.task is not None:
            self.task.cancel()

    def hear(self) -> None:
        """Note that the attempt has had its turn after it was cancelled."""
        if self.cut_short is not None:
            self.place.note_cut(HEARD)

    def begin_call(self) -> None:
        """Note that a thread begins a call of the attempt."""
        self._count_calls(1)

    def end_call(self) -> None:
        """Note that a thread has ended a call of the attempt."""
        self._count_calls(-1)

    def _count_calls(self, more: int) -> None:
        with self._lock:
            self._calls_now += more
            if not self.is_over:
                self.place.note_calls(self._calls_now)


# The attempt to which the running code belongs.
_running: contextvars.ContextVar[Run | None] = contextvars.ContextVar("running", default=None)


class Place:
    """A place for one attempt at a time: a slot of the page, and what a worker of it would have."""

    def __init__(self, slot: int, channel: Channel, tokens: Tokens, page: Page, who: str) -> None:
        self.slot = slot
        self.channel = channel
        self.tokens = tokens
        self.ring = page.ring(slot)
        self.who = who
        self.checkpoints = Checkpoints(who, _Undisturbed(), page, slot)
        self.waiting: deque[Attempt] = deque()
        # The messages that the dispatcher has not taken yet, and what is to follow them.
        self.outbox: deque[Any] = deque()
        self.then: Callable[[], None] | None = None
        self.run: Run | None = None
        self._page = page
        # Whether the slot tells of calls or of a cancel.
        self._is_noted = True

    def note_cut(self, cut: int) -> None:
        """Tell whether the attempt was cancelled; see :meth:`.Page.note_cut`."""
        self._is_noted = True
        self._page.note_cut(self.slot, cut)

    def note_calls(self, count: int) -> None:
        """Tell how many calls threads carry out now for the attempt."""
        self._is_noted = True
        self._page.note_calls(self.slot, count)

    def enter(self, attempt: Attempt, started: float, deadline: float, seconds: float) -> None:
        """Tell that the place runs an attempt, and nothing of the one before."""
        if self._is_noted:
            self._page.note_calls(self.slot, 0)
            self._page.note_cut(self.slot, NOT_CUT)
            self._is_noted = False
        facts = (deadline, started, 0, 0, seconds, attempt.uuid_text.encode())
        self._page.enter(self.slot, attempt.instance, attempt.number, *facts)


class _Undisturbed:
    """Stands in for an Interruption: nobody interrupts what runs in a thread."""

    def put_off(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class Marked(Coroutine[Any, Any, R]):
    """A coroutine whose steps are marked in shared memory as steps of an attempt."""

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, R],
        run: Run,
        words: "tuple[memoryview[int], memoryview[float]]",
    ) -> None:
        self._coroutine = coroutine
        self._run = run
        self._mark = run.place.slot + 1
        self._slots, self._times = words

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)  # asyncio shows its frame and its name

    def __await__(self) -> Generator[Any, Any, R]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._step(self._coroutine.send, value)

    def throw(self, *raised: Any) -> Any:
        self._run.hear()
        return self._step(self._coroutine.throw, *raised)

    def close(self) -> None:
        self._coroutine.close()

    def _step(self, step: Callable[..., Any], *arguments: Any) -> Any:
        slots, times = self._slots, self._times
        # A task may run its first step inside a step of the one that makes it.
        before, since = slots[0], times[0]
        times[0] = uptime()
        slots[0] = self._mark
        try:
            return step(*arguments)
        except (SystemExit, KeyboardInterrupt) as error:
            # It would end the loop.
            raise RuntimeError(f"a task of the handler raised {error!r}") from error
        finally:
            slots[0] = before
            times[0] = since


class LoopCapture(LogCapture):
    """Copies each log record to the log of the attempt whose code has logged it."""

    def __init__(self) -> None:
        super().__init__(is_of_attempt=_is_of_attempt, on_stray=say_stray)

    def current(self) -> Context | None:
        run = _running.get()
        return None if run is None else run.context


def _is_of_attempt() -> bool:
    run = _running.get()
    return run is None or not run.is_over


class Loop:
    """The loop of one process. ``places`` are slots with their channels and tokens."""

    def __init__(
        self, number: int, places: Sequence[tuple[int, Channel, Tokens]], inherited: Inherited
    ) -> None:
        self._page = page = inherited.page
        self._options = inherited.options
        scratch = inherited.folders.scratch
        if scratch is None:
            raise AssertionError("the supervisor makes the scratch folder before it forks")
        self._scratch = scratch / f"loop-{number}"
        self._words = page.step_words(number)
        self._words[0][0] = 0
        name = f"{hostname()}:{os.getppid()}"
        self._places = {
            slot: Place(slot, channel, tokens, page, f"{name} worker {slot}")
            for slot, channel, tokens in places
        }
        self._threads = CallThreads()
        self._fetching = ClosingExecutor(FETCHING, "atp-fetch", lambda: None)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.get_ident()
        # The context variables of an attempt when it begins.
        self._variables = contextvars.copy_context()
        # The tasks that the places have ahead are waiting.
        self._done = self._running = self._waiting = 0
        self._is_retiring = False
        # When the dispatcher is called next, on the clock of the event loop.
        self._call_at = NEVER
        # The graces of cancelled attempts, in seconds, by Type.
        self._graces: dict[str, float] = {}
        # The timer that cancels attempts, and when it rings on the uptime clock.
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = NEVER
        # The reason why the loop should run nothing more.
        self._worn_out: str | None = None

    def run(self) -> None:
        """Run Tasks until the loop retires; the supervisor ends the process otherwise."""
        if folders.is_private(self._scratch.parent):
            shutil.rmtree(self._scratch, ignore_errors=True)  # left by a loop that has died
        open_root_logger(settings.LOG_LEVEL)
        logging.getLogger().addHandler(LoopCapture())
        share_caches()
        loop = self._loop
        asyncio.set_event_loop(loop)
        loop.set_task_factory(self._make_task)
        loop.set_default_executor(ClosingExecutor(OTHER_THREADS, "atp-thread", _running.get))
        # A cursor of the server belongs to one connection, and the next call may have another.
        for alias in connections:
            connections[alias].settings_dict["DISABLE_SERVER_SIDE_CURSORS"] = True
        # All that a handler gives to sync_to_async, and Django's ORM, runs in its own lane.
        self._sensitive = CurrentLane(self._current_lane).enter()
        self._variables = contextvars.copy_context()
        loop.add_signal_handler(SIGNAL, self._on_signal)
        for place in self._places.values():
            loop.add_reader(place.channel.fileno(), self._hear, place)
            self._say(place, protocol.Look())
        loop.run_forever()

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
    ) -> asyncio.Task[Any]:
        context = options.get("context")
        run = _running.get() if context is None else context.get(_running)
        if run is None or run.is_over:
            return asyncio.Task(coroutine, loop=loop, **options)
        task = asyncio.Task(Marked(coroutine, run, self._words), loop=loop, **options)
        run.children.append(task)
        if len(run.children) % 100 == 0:
            run.children = [each for each in run.children if not each.done()]
        return task

    # The dispatcher, at each place

    def _hear(self, place: Place) -> None:
        """Take the tasks that come through the channel of a place, for whatever place."""
        heard: dict[int, list[Any]] = defaultdict(list)
        try:
            while True:
                tasks, _ = place.channel.receive(wait=False)
                for slot, task in tasks:
                    heard[slot].append(task)
        except BlockingIOError:
            pass
        except Closed:
            # The dispatcher has died, and the supervisor is about to end this process.
            self._loop.remove_reader(place.channel.fileno())
            return
        for slot, given in heard.items():
            self._give(self._places[slot], given)

    def _give(self, place: Place, tasks: Iterable[Any]) -> None:
        before = len(place.waiting)
        place.waiting.extend(unpacked(tasks))
        self._waiting += len(place.waiting) - before
        self._next(place)
        if place.run is None:
            # The dispatcher has taken the tasks back. It may believe that this place hangs.
            self._say(place, protocol.Look())

    def _say(self, place: Place, message: Any) -> None:
        """Send a message to the dispatcher, or keep it until the dispatcher reads."""
        box = place.outbox
        last = box[-1] if box else None
        if (
            isinstance(message, protocol.Progress)
            and isinstance(last, protocol.Progress)
            and last.key == message.key
        ):
            box[-1] = message  # the one before is of no use any more
        else:
            box.append(message)
        if len(box) == 1:
            self._flush(place)

    def _flush(self, place: Place) -> None:
        box = place.outbox
        while box:
            try:
                place.channel.send(box[0], wait=False)
            except BlockingIOError:
                self._loop.add_writer(place.channel.fileno(), self._flush_again, place)
                return
            except Closed:
                box.clear()
                return
            box.popleft()
        then, place.then = place.then, None
        if then is not None:
            then()

    def _flush_again(self, place: Place) -> None:
        self._loop.remove_writer(place.channel.fileno())
        self._flush(place)

    def _call_soon(self, within: float) -> None:
        """Make the dispatcher look into the rings after ``within`` seconds; 0 is the next turn."""
        at = self._loop.time() + within
        if at < self._call_at:
            self._call_at = at
            self._loop.call_at(at, self._call, at)

    def _call(self, at: float) -> None:
        if at != self._call_at:
            return  # an earlier call has taken its place
        self._call_at = NEVER
        for place in self._places.values():
            if not place.outbox:
                with contextlib.suppress(OSError, Closed):
                    place.channel.send(protocol.Look(), wait=False)
                    return

    # Attempts

    def _next(self, place: Place) -> None:
        """Start the next attempt of a place, if it has one and runs none."""
        if place.run is not None or self._worn_out:
            return
        while place.waiting:
            attempt = place.waiting.popleft()
            self._waiting -= 1
            # The dispatcher has taken the token of a task that it took back.
            if place.tokens.take(attempt.serial):
                self._start(place, attempt)
                return

    def _start(self, place: Place, attempt: Attempt) -> None:
        started = uptime()
        timeout = attempt.timeout
        seconds = NEVER if timeout is None else timeout.total_seconds()
        # The supervisor ends an attempt that has not ended after it was cancelled.
        grace = self._graces.get(attempt.type)
        if grace is None:
            grace = self._graces[attempt.type] = cancel_grace(attempt.type)
        place.enter(attempt, started, started + seconds + grace, seconds)
        place.run = run = Run(place, attempt, started)
        self._running += 1
        context = self._variables.copy()
        context.run(_running.set, run)
        marked = Marked(self._attempt(run), run, self._words)
        run.task = asyncio.Task(marked, loop=self._loop, context=context)
        if self._page.is_asked(place.slot, *attempt.key):
            run.cancel(Kind.INTERRUPTED)
        if seconds != NEVER:
            run.due = started + seconds
            if run.due < self._alarm_at:
                self._set_alarm(run.due)

    def _set_alarm(self, at: float) -> None:
        """Look for attempts whose time is out at this time: one timer serves all places."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = self._loop.call_later(max(0.0, at - uptime()), self._on_alarm)

    def _on_alarm(self) -> None:
        now, self._alarm, self._alarm_at = uptime(), None, NEVER
        runs = [run for place in self._places.values() if (run := place.run) is not None]
        for run in runs:
            if run.due <= now:
                run.due = NEVER
                run.cancel(Kind.TIMED_OUT)
        if (soonest := min((run.due for run in runs), default=NEVER)) != NEVER:
            self._set_alarm(soonest)

    def _on_signal(self) -> None:
        """Cancel the attempts that were asked to end."""
        for place in self._places.values():
            run = place.run
            if run is not None and self._page.is_asked(place.slot, *run.attempt.key):
                run.cancel(Kind.INTERRUPTED)

    async def _attempt(self, run: Run) -> None:
        try:
            place, run.started = run.place, uptime()
            run.context = context = LoopContext(
                run.attempt,
                report=partial(self._report, run),
                interruption=lambda: run.cut_short,
                scratch_root=self._scratch,
                keeper=place.checkpoints,
                grower=place.checkpoints,
                worker=place.who,
            )
            outcome = await self._outcome(run, context)
            context.end()
            if context.has_scratch:
                await _undisturbed(self._apart(run, context.remove_scratch))
            if run.has_work:
                await self._end_work(run)
            run.is_over = True
            # These refer to each other in a circle.
            run.context = run.task = None
            run.children = []
            self._end(run, outcome)
        except BaseException:
            # Nobody would hear of its end. The supervisor hands the others back.
            logger.critical("loop: %s failed", run.attempt.uuid_text, exc_info=True)
            os._exit(1)

    async def _outcome(self, run: Run, context: LoopContext) -> Outcome:
        """Run the handler; return an :class:`Outcome` in any case."""
        attempt = run.attempt
        error: BaseException | None = None
        try:
            outcome = await self._handle(run, context)
        except BaseException as raised:  # SystemExit too: a handler does not end its loop
            error = self._translated(run, raised)
        # What comes later concerns the clean-up alone.
        run.is_open, cut_short = False, run.cut_short
        if run.has_work and await self._end_work(run) and error is None:
            error = endings.LeftOpen()
        reported: BaseException | None = None
        if error is not None:
            outcome, reported = execution.read_error(attempt, context, error)
            if cut_short is Kind.TIMED_OUT:
                outcome = Outcome(Kind.TIMED_OUT, _timed_out(attempt, outcome))
        if reported is not None or signals.handler_ended.receivers:
            # Receivers and log handlers may use the database, or block.
            end = partial(execution.report_end, attempt, context, outcome, reported)
            await _undisturbed(self._apart(run, end))
        if error is not None:
            clear_variables(error)
            error = reported = None
        return outcome

    @staticmethod
    def _translated(run: Run, error: BaseException) -> BaseException:
        """Return what an exception means: Interrupted if the handler ended as it was cancelled."""
        if isinstance(error, asyncio.CancelledError) and run.cut_short is not None:
            return Interrupted()
        return error

    async def _handle(self, run: Run, context: LoopContext) -> Outcome:
        run.is_open, attempt = True, run.attempt
        if signals.handler_started.receivers:
            send = partial(execution.send_signal, signals.handler_started)
            await self._apart(run, partial(send, context=context, attempt=attempt))
        task_type, inputs = registry.handler_of(attempt.type), attempt.inputs
        if codec.is_untagged(inputs):
            args, kwargs = execution.arguments_of(attempt, context, task_type)
        else:
            args, kwargs = await self._fetched(run, context, inputs)
        call = partial(task_type.handler, context, *args, **kwargs)
        if run.cut_short is not None:
            raise Interrupted
        # Most carry nothing, and this is done for each attempt.
        if attempt.own is None:
            value = await middleware.run_async(context, call)
        else:
            with middleware.restore_context(attempt.carried):
                value = await middleware.run_async(context, call)
        run.is_open = False
        if value is None:
            return DONE
        return Outcome(Kind.FINISHED, response=await self._response(run, value))

    async def _fetched(self, run: Run, context: LoopContext, inputs: codec.Payload) -> Any:
        """Return arguments of a handler that have to be fetched, from the queue or elsewhere."""
        task_type = registry.handler_of(run.attempt.type)
        fetch = partial(execution.arguments_of, run.attempt, context, task_type)
        if codec.may_have_references(inputs):
            return await self._loop.run_in_executor(self._fetching, fetch)
        return await self._apart(run, fetch) if codec.may_have_results(inputs) else fetch()

    async def _response(self, run: Run, value: Any) -> ResponseData | None:
        task_type = registry.handler_of(run.attempt.type)
        try:
            content_type, body = execution.render(value, task_type)
            if len(body) <= settings.MAX_RESPONSE_INLINE:
                return ResponseData(content_type=content_type, data=body, size=len(body))
            store = partial(execution.stored_response, content_type, body, task_type, run.attempt)
            return await self._apart(run, store)
        except NotSerializable as error:
            raise Unusable from error

    def _current_lane(self) -> Lane:
        """Return the lane of the attempt whose code runs. Raises RuntimeError if it is over."""
        run = _running.get()
        if run is None:
            raise RuntimeError("Only an attempt may use the threads of its loop.")
        return self._lane(run)

    def _lane(self, run: Run) -> Lane:
        """Return the lane of an attempt. Raises RuntimeError if that is over."""
        if run.is_over:
            raise RuntimeError("The attempt is over: nothing of it may run in a thread any more.")
        if run.lane is None:
            run.lane = self._threads.lane(run)
        return run.lane

    async def _apart(self, run: Run, call: Callable[[], R]) -> R:
        """Call a function in a thread, as part of the attempt."""
        context = contextvars.copy_context()
        return await self._loop.run_in_executor(self._lane(run), partial(context.run, call))

    async def _end_work(self, run: Run) -> list[str]:
        """Wait for what an attempt has left in the loop and in threads: it is part of it.

        Return the aliases of the transactions that it has left open.
        """
        left_open: list[str] = []
        if run.children:
            await self._end_children(run)
        while run.calls:
            calls, run.calls = run.calls, []
            left = [asyncio.wrap_future(call) for call in calls if not call.cancel()]
            if left:
                await _undisturbed(asyncio.wait(left))
        if run.lane is not None:
            left_open = await _undisturbed(run.lane.end())
            run.lane = None
        return left_open

    async def _end_children(self, run: Run) -> None:
        """Cancel what the handler has left in the loop, and give it a grace to clean up."""
        children, run.children = run.children, []
        left = [task for task in children if not task.done()]
        for task in left:
            task.cancel()
        if left:
            _, living = await _undisturbed(asyncio.wait(left, timeout=GRACE))
            if living:
                self._report(run, "log", logging.WARNING, messages.coroutines_left_behind())
        for task in children:
            # Python would tell of it when it collects the garbage, for whatever attempt.
            if task.done() and not task.cancelled() and getattr(task, "_log_traceback", False):
                message = "a task of the handler raised, and nobody has looked at that"
                error = {"message": message, "exception": task.exception(), "task": task}
                self._loop.call_exception_handler(error)

    def _report(self, run: Run, kind: str, *values: Any, at: float | None = None) -> None:
        """Send a message of an attempt. Any thread of the handler may call this."""
        message: Any = protocol.REPORTED[kind]
        made = message(run.attempt.key, at or time.time(), *values)
        if threading.get_ident() == self._thread:
            self._say(run.place, made)
        else:
            self._loop.call_soon_threadsafe(self._say, run.place, made)

    def _end(self, run: Run, outcome: Outcome) -> None:
        """Report the end of an attempt, after all that it has said, and begin the next one."""
        place = run.place
        if place.outbox:
            # The dispatcher does not read now. To wait for that is not the attempt's time.
            self._page.put_off(place.slot, NEVER)
            place.then = partial(self._end, run, outcome)
            return
        end = (*run.attempt.key, run.started, uptime(), None if outcome is DONE else outcome)
        record = packed_end(*end)
        if len(record) > MOST_IN_RING or not place.ring.write(record):
            self._say(place, protocol.Ended(*end))
            if place.outbox:
                self._page.put_off(place.slot, NEVER)
                place.then = partial(self._ended, place)
                return
        self._ended(place)

    def _ended(self, place: Place) -> None:
        """Begin with the next attempt of a place: the end of the last one is on its way."""
        self._page.leave(place.slot)
        place.run = None
        self._done += 1
        self._running -= 1
        # Tasks that are ahead need no call at once. But the dispatcher may have taken them back,
        # and this loop does not know.
        self._call_soon(0.0 if not self._waiting else CALL_WITHIN)
        self._retire_if_worn_out()
        self._next(place)

    def _retire_if_worn_out(self) -> None:
        """Take no more tasks if there is a reason; end the loop when it runs nothing more."""
        self._worn_out = self._worn_out or reason_to_retire(self._options, self._done)
        if not self._worn_out:
            return
        if not self._is_retiring:
            self._is_retiring = True
            for place in self._places.values():
                self._say(place, protocol.Retiring(self._worn_out))
        if not self._running:
            self._loop.stop()


def _timed_out(attempt: Attempt, outcome: Outcome) -> str:
    """Return the message of an attempt that was cancelled after its time-out, with its error."""
    timeout: Any = attempt.timeout
    why = messages.timed_out(timeout.total_seconds())
    return why if outcome.kind is Kind.INTERRUPTED else f"{why}\n{outcome.message}"


async def _undisturbed(awaitable: Any) -> Any:
    """Await something to its end, even if a late cancel of the handler comes meanwhile."""
    future = asyncio.ensure_future(awaitable)
    while not future.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([future])
    return future.result()


def main(
    number: int, places: Sequence[tuple[int, Channel, Tokens]], inherited: Inherited
) -> NoReturn:
    """Run a loop and exit the process; never return."""
    status = 1
    try:
        be_a_worker()
        Loop(number, places, inherited).run()
        status = 0
    except BaseException:
        logger.critical("loop %s failed", number, exc_info=True)
    finally:
        os._exit(status)

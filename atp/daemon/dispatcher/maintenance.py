"""How maintenance jobs take turns; those of the event loop, the claiming and the recording."""

import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import connections

from ... import messages
from ... import queue as verbs
from ...commands import STACK, AttemptCommand
from ...conf import settings
from ...models import Downstream
from ...operations.registry import registry
from ...store.facts import Planned, Session, Swept
from .. import descendants, log, protocol
from ..database import DatabaseThread, Result, session_name
from ..processes import uptime
from ..protocol import Key
from ..stacks import Stack
from .pool import WorkerLink

if TYPE_CHECKING:
    from .attempts import Attempts
    from .commands import DaemonCommands
    from .core import Core

# Maintenance jobs: what a dispatcher does periodically, beside its Tasks.

# The seconds that a call should take at most, by vendor: SQLite has only one writer, and a daemon
# cuts calls that take over STATEMENT_TIMEOUT.
LONG, LONG_BY_VENDOR = 1.0, {"sqlite": 0.25}
# The number of rows that a job takes at once, at first and at most: Instances that it fails,
# schedules that it plans, Tasks that it takes away.
FIRST, MOST = 250, 500
# The longest rest between two portions, in seconds.
LONGEST_REST = 0.2


class Portion:
    """The number of rows that a job takes at once; ``size`` adapts to the time that they take.

    A call that takes too long makes it smaller, and so does one that fails, since the daemon cuts
    a call that takes over STATEMENT_TIMEOUT: so the next call does not fail at the same rows. Quick
    calls make it larger again, up to ``most``.
    """

    def __init__(self, first: int, most: int) -> None:
        self.size = first
        # The seconds for which the job should rest before it takes more, so that others get
        # their turn: its neighbours in the thread, and on SQLite the other writers.
        self.rest = 0.0
        self._most = most
        self._long = LONG_BY_VENDOR.get(connections[settings.DATABASE].vendor, LONG)

    @contextmanager
    def measured(self) -> Iterator[int]:
        """Give the number of rows for the call in this block, and adapt it to the call."""
        began = uptime()
        try:
            yield self.size
        except BaseException:
            self._shrink()
            raise
        seconds = uptime() - began
        self.rest = min(LONGEST_REST, seconds)
        if seconds > self._long:
            self._shrink()
        elif seconds < self._long / 3:
            self.size = min(self._most, 2 * self.size)

    def _shrink(self) -> None:
        self.size = max(1, self.size // 2)


class Job:
    """One entry of the table of jobs.

    ``name`` is the name of its timer. ``doing`` describes the job in the log. ``every()``
    returns its interval in seconds; a job without an interval runs when a look at the queue
    has found a reason for it (see :class:`.jobs.Look`). ``may()`` says whether it may run now.

    A job of the event loop has a ``run()``. Any other job has a ``call()``, which returns
    a function for a database thread; afterwards the event loop calls ``done(result)``. A job
    with a ``failed(result)`` handles its own failure, and the daemon keeps its identity.
    Without one, a failure ends the daemon's identity.
    """

    name = doing = ""
    # The number of seconds by which it may run before it is due.
    early = 0.0
    failed: Callable[[Result[Any]], None] | None = None

    def __init__(
        self, core: "Core", attempts: "Attempts", daemon_commands: "DaemonCommands"
    ) -> None:
        self.core = core
        self.attempts = attempts
        self.daemon_commands = daemon_commands
        self._is_timed = type(self).every is not Job.every

    def every(self) -> float | None:
        """Return the interval of the job in seconds, or None."""

    def may(self) -> bool:
        return True

    def is_due(self) -> bool:
        """Tell whether the job is due; if so, set its timer to one interval from now.

        Every job is asked at every turn of the event loop, and hardly any is due.
        """
        timers, reasons = self.core.timers, self.core.queue.jobs
        if self._is_timed:
            if not timers.passed(self.name, self.early) or not self.may():
                return False
            timers.later(self.name, self.every() or 0.0)
        else:
            if self.name not in reasons or not self.may():
                return False
            reasons.discard(self.name)
        return True

    def again(self) -> None:
        """Make a job without an interval run once more."""
        self.core.queue.jobs.add(self.name)

    def run(self) -> None:
        """Run the job on the event loop, without a call to the database."""
        raise NotImplementedError

    def call(self) -> Callable[[], Any]:
        raise NotImplementedError

    def done(self, result: Result[Any]) -> None:
        """Take the result of the call; by default, do nothing."""


def run_due(jobs: Iterable[Job]) -> None:
    """Run the jobs of the event loop that are due."""
    for job in jobs:
        if job.is_due():
            job.run()


class Jobs:
    """The jobs of one thread, in the order of their importance."""

    def __init__(self, thread: DatabaseThread, jobs: Sequence[Job]) -> None:
        self._thread = thread
        self._jobs = jobs

    def turn(self) -> bool:
        """Start the first job that is due, if the thread is free; return whether one started."""
        if self._thread.busy:
            return False
        for job in self._jobs:
            if job.is_due():
                self._thread.submit(job.doing, job.call(), job.done, job.failed)
                return True
        return False


# Failing the Instances that a gate drops.


class Drop(Job):
    """The job that runs when a look has found such Instances, and again until none is left."""

    name, doing = "drop", "dropping what a gate drops"

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._portion = Portion(FIRST, MOST)

    def call(self) -> Callable[[], int]:
        return partial(self._drop, self.core.identity.name)

    def _drop(self, who: str) -> int:
        with self._portion.measured() as limit:
            return self.core.store.gates.drop(who=who, limit=limit)

    def done(self, result: Result[int]) -> None:
        if result.value:
            log.dropped(count=result.value)
            self.again()


# Failing the Instances that were not started before their ``start_before``.


class Miss(Job):
    """The job that runs when a look has found such Instances, and again until none is left."""

    name, doing = "miss", "looking for what was missed"

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._portion = Portion(FIRST, MOST)

    def call(self) -> Callable[[], int]:
        return partial(self._miss, self.core.identity.name)

    def _miss(self, who: str) -> int:
        with self._portion.measured() as limit:
            return self.core.store.claims.miss(who=who, limit=limit)

    def done(self, result: Result[int]) -> None:
        if result.value:
            self.core.counters.missed(result.value)
            self.again()


# Planning the slots of schedules (G16).

# The time until the next look if nothing could be planned, in seconds.
REST = 0.2


class Plan(Job):
    """The job that runs when a look has found a due slot, and again until none is left.

    A look also finds the time of the next slot; a timer wakes the daemon at that time.
    """

    name, doing = "plan", "planning the slots of schedules"

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._portion = Portion(FIRST, MOST)

    def may(self) -> bool:
        return self.core.identity.leased

    def is_due(self) -> bool:
        queue = self.core.queue
        if queue.planned_at is not None and self.core.timers.passed(self.name):
            queue.planned_at = None
            self.again()
        return super().is_due()

    def call(self) -> Callable[[], Planned]:
        return partial(self._plan, self.core.identity.name)

    def _plan(self, who: str) -> Planned:
        with self._portion.measured() as limit:
            return self.core.store.schedules.plan(who=who, limit=limit)

    def done(self, result: Result[Planned]) -> None:
        planned, queue = result.value, self.core.queue
        if planned.decided:
            log.planned(slots=planned.decided, enqueued=planned.enqueued)
        if planned.enqueued:
            queue.call()
        if not planned.decided:
            # Another daemon has planned the slot, or somebody has locked it: other jobs go first.
            self.core.timers.later("outlook", REST)
            return
        if not planned.is_whole:
            self.again()
        # The look finds the time of the next slot.
        self.core.timers.now("outlook")


# Reading the commands to the Tasks that this daemon holds: cancel, pause, resume, release, stack.

# The commands are read at least this often, in seconds: the end of a cancelled attempt should not
# come much later than its grace.
AT_LEAST_EVERY = 0.5


class ReadCommands(Job):
    """The job that reads the commands, as long as this daemon holds a Task."""

    name, doing = "asked", "reading requests"

    def every(self) -> float:
        return min(settings.POLL_EVERY, AT_LEAST_EVERY)

    def may(self) -> bool:
        return self.attempts.any()

    def call(self) -> Callable[[], list[AttemptCommand]]:
        return partial(self.core.store.control.asked, self.core.identity.holder)

    def done(self, result: Result[list[AttemptCommand]]) -> None:
        stacks = []
        for asked in result.value:
            if asked.request == STACK:
                stacks.append((asked.instance, asked.attempt))
            else:
                self.attempts.asked(asked)
        self.attempts.stacks.asked(stacks)


# Reading what the database sessions of attempts do, if somebody has asked for the stacks.


class ReadSessions(Job):
    """The job that records the stacks that were taken, with the sessions of their workers.

    If it fails, they are recorded without the sessions.
    """

    name, doing = "sessions", "reading the sessions of attempts"

    def every(self) -> float:
        return 0.0

    def may(self) -> bool:
        return bool(self.attempts.stacks.taken)

    def call(self) -> Callable[[], list[list[Session]]]:
        self._taken: list[tuple[WorkerLink, Key, float, Stack]] = self.attempts.stacks.take()
        names = [session_name(link.pid) for link, _, _, _ in self._taken]
        store = self.core.store
        return lambda: [store.sessions(name) for name in names]

    def done(self, result: Result[list[list[Session]]]) -> None:
        for (link, key, at, stack), sessions in zip(self._taken, result.value, strict=True):
            attempt = link.assigned.get(key)
            self.attempts.stacks.record(link, attempt, stack, at=at, sessions=sessions)

    def failed(self, result: Result[Any]) -> None:
        for link, key, at, stack in self._taken:
            self.attempts.stacks.record(link, link.assigned.get(key), stack, at=at)


# Registering the Types that this daemon serves.

# The registration of Types that somebody else has locked is tried again this often, in seconds.
REGISTER_AGAIN = 1.0


class Register(Job):
    """The job that registers Types once, and again those that somebody else has locked.

    Where the row of a Type lacks the downstream that the code names, it writes that.
    """

    name, doing = "register", "registering Types"

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._locked: Collection[str] = ()
        self._names: dict[str, str] = {}

    def every(self) -> float:
        return REGISTER_AGAIN

    def is_due(self) -> bool:
        if not self.core.identity.is_registered:
            return True
        return bool(self._locked or self.core.downstreams.unnamed()) and super().is_due()

    def call(self) -> Callable[[], set[str]]:
        identity, store = self.core.identity, self.core.store
        self._names = {}
        if identity.is_registered and not self._locked:
            # Nothing else: the other parameters may be those of a newer release.
            names = {type: registry.downstream(type) for type in self.core.downstreams.unnamed()}
            self._names = names
            return lambda: store.types.name_downstreams(names, who=identity.name)
        types = self._locked or identity.types
        # The row of a former name exists already, or no Task waits under that name.
        own: list[Any] = [registry.get(name) for name in types if not registry.is_former(name)]
        return lambda: verbs.register(*own, by=identity.name)

    def done(self, result: Result[set[str]]) -> None:
        if self._names:
            self.core.downstreams.named(self._names.keys() - result.value)
        else:
            self.core.identity.is_registered, self._locked = True, result.value
        self.core.timers.later(self.name, REGISTER_AGAIN)


# Reporting the answers of downstreams to their rows, which all daemons share.


class Report(Job):
    """The job that reports a downstream's answers, before the ends of attempts are recorded.

    The probe of a downstream is over as soon as the end of its attempt is known.
    """

    name, doing = "downstreams", "reporting of downstreams"

    def is_due(self) -> bool:
        return self.core.identity.is_registered and bool(self.core.downstreams.due())

    def call(self) -> Callable[[], tuple[Downstream | None, float]]:
        core = self.core
        self._name = name = core.downstreams.due()[0]
        report, who = core.downstreams.take(name), core.identity.name
        spread = random.uniform(-1, 1)  # noqa: S311

        def tell() -> tuple[Downstream | None, float]:
            row = core.store.downstreams.report(name, report, who=who, spread=spread)
            if row is None:
                return None, 0.0
            return row, row.protection.opens_in(core.store.now().timestamp())

        return tell

    def done(self, result: Result[tuple[Downstream | None, float]]) -> None:
        row, opens_in = result.value
        downstreams, name = self.core.downstreams, self._name
        downstreams.told(name, row, opens_in)
        gone = downstreams.let_go(self.core.pool, name)
        self.attempts.hand_back(gone, messages.downstream_takes_no_more(name))

    def failed(self, result: Result[Any]) -> None:
        """Keep the report that was not written, and send it again."""
        self.core.downstreams.told(self._name, None)


# Taking away the Tasks of lost daemons.


class Sweep(Job):
    """The job that runs when a look has found lost daemons, and this daemon may judge them."""

    name, doing = "sweep", "sweeping"

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._portion = Portion(FIRST, MOST)

    def may(self) -> bool:
        return self.core.identity.may_sweep

    def call(self) -> Callable[[], tuple[int, Swept]]:
        daemon = self.core.identity.current

        def sweep() -> tuple[int, Swept]:
            # Kill the processes of lost daemons on this host before their Tasks are taken away.
            ended = descendants.end_abandoned()
            with self._portion.measured() as limit:
                return ended, self.core.store.daemons.sweep(daemon=daemon, limit=limit)

        return sweep

    def done(self, result: Result[tuple[int, Swept]]) -> None:
        ended, swept = result.value
        if ended:
            log.abandoned(count=ended)
        if swept.daemons or swept.expired:
            names = ", ".join(swept.daemons) or "one with many Tasks"
            log.daemons_lost(daemons=names, expired=swept.expired)
            self.core.counters.lost(swept.lost, "its daemon was lost")
            self.core.queue.put_back()


# The jobs of the event loop: a sign of life, a summary for the log, the usage of the workers.

# The memory of the workers is measured this often, in seconds. A minute is a multiple of it.
MEASURE_EVERY = 10.0


class SignOfLife(Job):
    """The job that sends a sign of life to the supervisor, which kills a silent dispatcher."""

    name = "alive"
    # If the dispatcher is awake anyway, the sign is sent up to this many seconds early; that
    # is less than the time between two turns.
    early = 0.49

    def every(self) -> float:
        return 1.0

    def run(self) -> None:
        self.core.tell(protocol.Alive())


class Summarize(Job):
    """The job that logs how many tasks finished and failed."""

    name = "summary"

    def every(self) -> float:
        return 60.0

    def run(self) -> None:
        self.core.counters.summarize(self.every())


class Measure(Job):
    """The job that measures the workers' memory, and ends a period of usage at each minute."""

    name = "usage"

    def every(self) -> float:
        clock = time.time() + self.core.identity.offset.total_seconds()
        return MEASURE_EVERY - clock % MEASURE_EVERY

    def run(self) -> None:
        usage = self.attempts.usage
        usage.weigh()
        if usage.is_over():
            self.core.statistics.add_usage(usage.close())

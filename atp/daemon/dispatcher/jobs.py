"""The table of maintenance jobs; those with a thread of their own: purging, counting, graphs."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import InterfaceError, OperationalError, connections

from ...conf import settings
from ...store.facts import Cursor, Finding, Marks, Outlook
from .. import descendants, log
from ..database import Result
from ..processes import Timers, uptime
from .maintenance import (
    Drop,
    Job,
    Measure,
    Miss,
    Plan,
    Portion,
    ReadCommands,
    ReadSessions,
    Register,
    Report,
    SignOfLife,
    Summarize,
    Sweep,
)

# Counting ends into Statistic, and dead letters into error groups, in the purging thread.

# In seconds: between two foldings, and between two pieces of one.
FOLD_EVERY, SOON = 600.0, 0.1
# The numbers of log records that are counted at once, and of rows that are folded, at first and at
# most.
RECORDS, MOST_RECORDS, ROWS, MOST_ROWS = 5_000, 20_000, 500, 1_000
# Once an Instance has failed here, dead letters are counted every AGAIN seconds. The number that is
# counted at once, at first and at most.
AGAIN, FIRST, LETTERS = 1.0, 500, 2_000


class Count(Job):
    """The job that counts the log records that daemons left uncounted, and folds the rows.

    It runs when a look has found such records, and every FOLD_EVERY. If it fails, the daemon keeps
    its identity, and the job tries again at its next turn.
    """

    name, doing = "count", "counting"

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._records = Portion(RECORDS, MOST_RECORDS)
        self._rows = Portion(ROWS, MOST_ROWS)

    def every(self) -> float:
        return FOLD_EVERY

    def may(self) -> bool:
        return self.core.identity.is_registered

    def is_due(self) -> bool:
        reasons = self.core.queue.jobs
        if self.name in reasons and self.may():
            reasons.discard(self.name)
            return True
        return super().is_due()

    def call(self) -> Callable[[], tuple[int, int]]:
        store = self.core.store
        folds = self.core.timers.due("fold", FOLD_EVERY)

        def count() -> tuple[int, int]:
            with self._records.measured() as limit:
                paid = store.statistics.pay(limit)
            folded = 0
            if folds:
                with self._rows.measured() as limit:
                    now = store.now()
                    folded = store.statistics.fold(now, limit)
                    folded += store.statistics.fold_usage(now, limit)
            return paid, folded

        return count

    def done(self, result: Result[tuple[int, int]]) -> None:
        paid, folded = result.value
        if folded:
            self.core.timers.now("fold")
        if paid or folded:
            self.core.timers.later(self.name, SOON)

    def failed(self, result: Result[Any]) -> None:
        log.count_failed(error=" ".join(str(result.error).split()))


class CountFailures(Job):
    """The job that counts dead letters into their error groups.

    It runs soon after a failure here, and every PURGE_EVERY for the failures of other daemons.
    If it fails, the daemon keeps its identity, and the job tries again at its next turn.
    """

    name, doing = "count failures", "counting failures"

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._portion = Portion(FIRST, LETTERS)

    def every(self) -> float:
        return settings.PURGE_EVERY

    def may(self) -> bool:
        return self.core.identity.is_registered

    def is_due(self) -> bool:
        counters = self.core.counters
        soon = self.core.timers
        if counters.has_failures and self.may() and soon.due("count failures soon", AGAIN):
            counters.has_failures = False
            return True
        return super().is_due()

    def call(self) -> Callable[[], int]:
        def count() -> int:
            with self._portion.measured() as limit:
                return self.core.store.errors.count(limit=limit)

        return count

    def done(self, result: Result[int]) -> None:
        # More may be left. Those that another daemon has locked wait for the next turn.
        if result.value:
            self.core.counters.has_failures = True

    def failed(self, result: Result[Any]) -> None:
        self.core.counters.has_failures = True
        log.failures_not_counted(error=" ".join(str(result.error).split()))


# The upkeep of graphs: failing the nodes that depend on failed ones, and ending graphs (G17).

# The interval in seconds while graphs live, and while the daemon does not know of a live one.
BUSY, IDLE = 1.0, 5.0
# The number of nodes that one turn fails or removes at first, and at most. It looks at twice as
# many graphs.
NODES_FIRST, NODES_MOST = 250, 500


class Graphs(Job):
    """The job that keeps up graphs, in the purging thread; it needs no identity of the daemon.

    While looks at the queue find no live graph, it runs for the purge of graphs alone.
    """

    name, doing, purging = "graphs", "the upkeep of graphs", "purge graphs"

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._after = 0
        self._is_busy = False
        self._portion = Portion(NODES_FIRST, NODES_MOST)

    def every(self) -> float:
        return BUSY if self._is_busy else IDLE

    def may(self) -> bool:
        if not self.core.identity.is_registered:
            return False
        return self._is_busy or not self._are_none() or self.core.timers.passed(self.purging)

    def _are_none(self) -> bool:
        """Tell whether a recent look has found no live graph."""
        looked = self.core.queue.graphless_at
        return looked is not None and uptime() < looked + IDLE

    def call(self) -> Callable[[], tuple[int, int, bool, int | bool, int, bool]]:
        graphs, after = self.core.store.graph_ends, self._after
        purges = self.core.timers.due(self.purging, settings.PURGE_EVERY)
        only_purges = purges and not self._is_busy and self._are_none()
        who = self.core.identity.name

        def purge() -> tuple[int, int, bool, int | bool, int, bool]:
            with self._portion.measured() as limit:
                removed = graphs.purge(limit=limit)
            return 0, removed, removed >= limit, removed >= limit, 0, False

        def keep_up() -> tuple[int, int, bool, int | bool, int, bool]:
            with self._portion.measured() as limit:
                failed = graphs.fail_dependants(who=who, limit=limit)
                _, after_these = graphs.end(limit=2 * limit, after=after, who=who)
                is_undoing = graphs.undo(limit=limit, who=who)
                removed = graphs.purge(limit=limit) if purges else 0
                is_busy = graphs.are_live()
            goes_on = failed or is_undoing or removed >= limit
            return failed, removed, removed >= limit, goes_on, after_these, is_busy

        return purge if only_purges else keep_up

    def done(self, result: Result[tuple[int, int, bool, int | bool, int, bool]]) -> None:
        failed, removed, are_more_over, goes_on, self._after, self._is_busy = result.value
        if failed:
            log.dependants_failed(count=failed)
        if removed:
            log.purged(count=removed)
        if goes_on:
            self.core.timers.later(self.name, self._portion.rest)
        if are_more_over:
            self.core.timers.now(self.purging)

    def failed(self, result: Result[Any]) -> None:
        log.graphs_failed(error=" ".join(str(result.error).split()))


# Looking at the queue: when the next Task is due, and which other jobs have to run.


class Look(Job):
    """The job that looks at the queue. Its one statement saves those of the other jobs."""

    name, doing = "outlook", "looking at the queue"

    def every(self) -> float:
        return min(settings.POLL_EVERY, settings.SWEEP_EVERY)

    def call(self) -> Callable[[], Outlook]:
        self._put_backs: int = self.core.queue.put_backs
        identity = self.core.identity
        types = self.core.capacity.claimable(self.core.misfits.claimable(identity.types))
        return partial(self.core.store.daemons.outlook, types, daemon=identity.current)

    def done(self, result: Result[Outlook]) -> None:
        outlook, queue = result.value, self.core.queue
        is_planned = outlook.planned is not None and outlook.planned <= 0
        wanted: dict[type[Job], bool] = {
            Sweep: outlook.lost,
            Miss: outlook.late,
            Drop: outlook.drops,
            Plan: is_planned,
            Count: outlook.owed,
        }
        queue.jobs = {job.name for job, is_wanted in wanted.items() if is_wanted}
        self.daemon_commands.hint(outlook.request)
        queue.due_at = None if outlook.due is None else result.sent + outlook.due
        if outlook.due is None or outlook.due > 0:
            for loops in (False, True):
                queue.found_empty(self._put_backs, loops=loops)
        queue.graphless_at = None if outlook.graphs else result.sent
        queue.planned_at = None
        if outlook.planned is not None and outlook.planned > 0:
            queue.planned_at = result.sent + outlook.planned
            self.core.timers.later(Plan.name, outlook.planned)
        if outlook.due is not None and outlook.due > 0:
            self.core.timers.later("due", outlook.due)


# Removing Instances whose retention is over, in a thread beside claiming and recording.

PURGING = "purging"
# The number of Instances that are removed at once. It grows as long as the daemon is behind,
# and shrinks if a removal takes more than LONG seconds or fails.
FEWEST, PURGE_FIRST, PURGE_MOST = 10, 500, 5000
LONG = 1.0
# If more is left, the job rests for a multiple (by vendor) of the time that the last removal
# took, and for LONGEST_REST seconds at most.
REST = {"sqlite": 2.0}
LONGEST_REST = 0.2
# Behind Instances that cannot be removed, the job rests ever longer, up to this, in seconds.
LONGEST_BEHIND = 5.0
# If nothing is left, the job runs again when it expects half a piece, no sooner than this.
SHORTEST = 0.1


class Purge(Job):
    """The job that purges Instances, and decides how many it removes at once, and when.

    It holds nothing under the daemon's identity, so the daemon keeps that if the job fails.
    """

    name, doing = "purge", PURGING

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._timers: Timers = self.core.timers
        self._rest = REST.get(connections[settings.DATABASE].vendor, 1.0)
        self._limit = PURGE_FIRST
        self._pause = settings.PURGE_EVERY
        self._marks = Marks()
        self._behind = LONGEST_REST
        self._untold = 0

    def every(self) -> float:
        return settings.PURGE_EVERY

    def may(self) -> bool:
        return self.core.identity.is_registered

    def call(self) -> Callable[[], tuple[int, float, int, bool]]:
        goes_on = self._marks.passes_kept
        if not goes_on and self._timers.due("purge everywhere", settings.PURGE_EVERY):
            # Instances that earlier turns left out, or that ended late, lie before the marks.
            self._marks.clear()
        limit, marks = self._limit, self._marks

        def purge() -> tuple[int, float, int, bool]:
            began = uptime()
            count = self.core.store.removal.purge(limit=limit, marks=marks)
            return count, uptime() - began, limit, marks.passes_kept

        return purge

    def done(self, result: Result[tuple[int, float, int, bool]]) -> None:
        self._purged(*result.value)

    def _purged(self, count: int, seconds: float, limit: int, passes_kept: bool) -> None:
        self._untold += count
        # A busy daemon removes all the time, and logs a sum only every PURGE_EVERY.
        if self._untold and self._timers.due("purged", settings.PURGE_EVERY):
            log.purged(count=self._untold)
            self._untold = 0
        if passes_kept:
            # Others lie behind those that could not be removed.
            self._behind = LONGEST_REST if count else min(LONGEST_BEHIND, 2 * self._behind)
            self._timers.later("purge", self._behind)
            return
        self._behind = LONGEST_REST
        if count >= limit:
            if seconds < LONG:
                self._limit = min(PURGE_MOST, 2 * limit)
            else:
                # A limit that failed calls have lowered stays: they would fail again.
                self._limit = max(min(PURGE_FIRST, limit), limit // 2)
            self._pause = max(SHORTEST, self._pause / 2)
            self._timers.later("purge", min(LONGEST_REST, self._rest * seconds))
            return
        self._pause *= _within(limit / 2 / max(count, 1))
        self._pause = max(SHORTEST, min(settings.PURGE_EVERY, self._pause))
        self._timers.later("purge", self._pause)

    def failed(self, result: Result[Any]) -> None:
        """Try again after PURGE_EVERY, on a new connection, with half as many at once."""
        self._limit = max(FEWEST, self._limit // 2)
        log.purge_failed(error=" ".join(str(result.error).split()))
        self._timers.later("purge", settings.PURGE_EVERY)


def _within(factor: float) -> float:
    """Return the factor, limited to between a half and two."""
    return max(0.5, min(2.0, factor))


# Scanning a part of the tables each time, from where the last scan stopped.


class Scan(Job):
    """The job that finds faults in the tables, and mends those that are safe to mend."""

    name, doing = "scan", "scanning"
    # Where the last scan stopped.
    _cursor: Cursor | None = None

    def every(self) -> float:
        return settings.SCAN_EVERY

    def may(self) -> bool:
        return self.core.identity.may_sweep

    def call(self) -> Callable[[], tuple[Finding, ...]]:
        return partial(self.scan, self.core.identity.name)

    def scan(self, who: str) -> tuple[Finding, ...]:
        """Scan once, sign repairs as ``who``, and return the findings. Runs in a thread.

        An error in the scan is logged, and does not end the daemon's identity. An outage of
        the database is raised, since it concerns the other calls too.
        """
        # Kill the processes of dead daemons on this host, before their Tasks may be handed
        # out again.
        descendants.end_abandoned()
        try:
            scanned = self.core.store.upkeep.scan(self._cursor, who=who)
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            self._cursor = None
            log.scan_failed(error=error, exc_info=error)
            return ()
        self._cursor = scanned.cursor
        return scanned.findings

    def done(self, result: Result[tuple[Finding, ...]]) -> None:
        for finding in result.value:
            fact = log.mended if finding.done else log.found
            fact(what=str(finding))


# Removing old slots and old error groups, in the thread that purges.

# The number of slots that are removed at once, at first and at most, and the seconds between two
# portions.
SLOTS_FIRST, SLOTS_MOST, SLOTS_SOON = 500, 5_000, 0.1
# The number of PURGE_EVERY between two trims: what they remove is small, and may wait.
TRIMS = 10
# An error group without dead letters is kept this long after its last failure.
KEPT = timedelta(days=30)


class Trim(Job):
    """The job that removes old slots and error groups every ten PURGE_EVERY.

    If it fails, the daemon keeps its identity, and the job tries again at its next turn.
    """

    name, doing = "trim", "removing old slots and error groups"

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._portion = Portion(SLOTS_FIRST, SLOTS_MOST)

    def every(self) -> float:
        return TRIMS * settings.PURGE_EVERY

    def may(self) -> bool:
        return self.core.identity.is_registered

    def call(self) -> Callable[[], int]:
        def trim() -> int:
            store = self.core.store
            with self._portion.measured() as limit:
                removed = store.schedules.trim(limit=limit)
            if not removed:
                store.errors.trim(before=store.now() - KEPT)
            return removed

        return trim

    def done(self, result: Result[int]) -> None:
        if result.value:
            self.core.timers.later(self.name, SLOTS_SOON)

    def failed(self, result: Result[Any]) -> None:
        log.purge_failed(error=" ".join(str(result.error).split()))


# The table of jobs. To add a job, write its class and add it here.

# The event loop does these itself.
ON_THE_LOOP = (SignOfLife, Summarize, Measure)
# The thread that claims does these when there is nothing to claim: the first one that is due.
CLAIMING = (Plan, Look, Sweep, Miss, Drop, Scan)
# The thread that records does these after a renewal, and before it records changes.
RECORDING = (Report, Register, ReadCommands, ReadSessions)
# These have a thread of their own, which keeps its connection for the next of them for so many
# seconds.
KEEP = 5.0
BESIDE = (CountFailures, Graphs, Trim, Count, Purge)

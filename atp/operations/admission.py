"""Refuse or delay an enqueue while too many Tasks wait (`max_waiting`, `max_wait`).

To save queries, a process counts the waiting Tasks of a Type or a lane only every quarter of a
second, and adds its own enqueues to the last count. It counts again earlier once it has enqueued
1/64 of the headroom or 1/1000 of the queue depth, whichever is more. Each process can therefore
exceed ``max_waiting`` by that number, unless the option ``exact`` makes enqueues wait for each
other. Threads update the count without a lock, so a lost update can let in a few more Tasks.
"""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from django.db import DatabaseError

from ..exceptions import InvalidOption, QueueFull
from ..text import as_timedelta, describe_target, duration

if TYPE_CHECKING:
    from ..options import Options
    from ..store.facts import Fill
    from ..store.protocol import Store
    from ..store.values import Submission
    from .registry import Declaration


# In seconds: how long this process remembers which Types operators have limited.
KNOWN = 5.0
# The parts of the headroom, and of the queue depth, that a process enqueues between two counts.
HEADROOM_PART, DEPTH_PART = 64, 1000
# In seconds: how long a process uses a count. A count that took long is used for longer, so that
# counting takes at most one part in PART of the time.
KEPT, PART = 0.25, 20
# In seconds: how long a process uses the drain rate that it has read for a Type.
DRAINED = 5.0
# In seconds: the window of the drain rate, and the time between two log records of a full target.
WINDOW, TOLD = 300.0, 60.0
# In seconds: how long a client should wait if nothing drains, and otherwise the range of that time.
NOTHING_DRAINS, SHORTEST, LONGEST = 30.0, 1.0, 600.0
JITTER = 0.2
# The maximum number of Types and lanes whose counts a process keeps.
MOST = 10_000

_log = logging.getLogger("atp")


# What a process remembers


class QueueDepthCount:
    """The number of waiting Tasks of a Type or a lane when they were counted, and later enqueues.

    ``fill`` has the count and the limits. The count expires at ``until``, a monotonic time.
    ``added`` is the number of Tasks that this process has enqueued after the count. From the time
    ``again`` on, a queue that these Tasks have filled is counted anew, since some Tasks may have
    started.
    """

    def __init__(self, fill: Fill, until: float, again: float) -> None:
        self.fill, self.until, self.again, self.added = fill, until, again, 0
        headroom = fill.room(0)
        left = 0 if headroom is None else max(1, (headroom - fill.waiting) // HEADROOM_PART)
        self._most = max(left, fill.waiting // DEPTH_PART) if left else inf

    def holds(self, now: float) -> bool:
        """Return True if the count is recent enough to be used for another enqueue."""
        return now < self.until and self.added < self._most

    def overflow(self, count: int, priority: int) -> int:
        """Return how many waiting Tasks must start before ``count`` more fit; 0 if they fit now."""
        return self.fill.excess(count + self.added, priority)


class KnownCounts:
    """The queue depths and drain rates that this process has cached for one database."""

    def __init__(self) -> None:
        self.until = 0.0
        # By identifier of a limited Type: True if one of the Type's lanes has its own limit.
        self.types: dict[str, bool] = {}
        self.depths: dict[tuple[str, str | None], QueueDepthCount] = {}
        # By Type: the drain rate, and the time at which it expires.
        self.drains: dict[str, tuple[float, float]] = {}
        # By target: the refusals since the last log record, and the earliest time of the next.
        self.refused: dict[tuple[str, str | None], tuple[int, float]] = {}


_known: defaultdict[str, KnownCounts] = defaultdict(KnownCounts)


def forget_counts() -> None:
    """Clear the cached queue depths and drain rates, for example after limits have changed."""
    _known.clear()


def known_counts(store: Store) -> KnownCounts:
    """Return the cached queue depths and drain rates for the store's database."""
    return _known[store.alias]


def is_limited(store: Store, task_type: Declaration) -> bool:
    """Return True if the code or an operator limits how many Tasks of a Type may wait.

    This notices a limit that another process sets after at most five seconds.
    """
    known = known_counts(store)
    if monotonic() >= known.until:
        known.types, known.until = store.filling.bounded(), monotonic() + KNOWN
    return (
        task_type.max_waiting is not None
        or task_type.max_wait is not None
        or task_type.identifier in known.types
    )


# Admission


@contextmanager
def admit(
    store: Store,
    task_type: Declaration,
    submissions: Sequence[Submission],
    options: Sequence[Options],
) -> Iterator[Sequence[Submission]]:
    """Check that all Submissions of a Type fit into its queue, and yield them for the enqueue.

    ``options`` has the Options of each Submission. If a Submission with ``on_full="delay"`` does
    not fit, it gets a later due time. If any other Submission does not fit, this raises QueueFull.
    Raises InvalidOption if the Submissions are more than the queue can ever take at once.
    """
    admission = _Admission(store, task_type)
    try:
        if any(each.exact for each in options):
            with store.filling.enqueueing_alone(task_type.registration()):
                known_counts(store).depths.clear()
                yield admission.admit(submissions, options)
        else:
            yield admission.admit(submissions, options)
    finally:
        # After the transaction: a refusal rolls it back, and the log record has to stay.
        admission.log_full_targets()


class _Admission:
    """Decides whether Submissions of one Type, which are enqueued together, fit into its queue."""

    def __init__(self, store: Store, task_type: Declaration) -> None:
        self._store, self._type = store, task_type
        self._known = known_counts(store)
        self._full_targets: list[tuple[Fill, int]] = []

    def admit(
        self, submissions: Sequence[Submission], options: Sequence[Options]
    ) -> Sequence[Submission]:
        """Return the Submissions after setting later due times for those that have to be delayed.

        Raises QueueFull or InvalidOption.
        """
        lanes = {each.collection for each in submissions}
        depths, numbers = self._read_depths(lanes), set(range(len(submissions)))
        full = self._select_full(depths, submissions, numbers)
        if old := [depth for depth in full if _may_be_old(depth)]:
            for depth in old:
                depth.until = 0.0
            depths = self._read_depths(lanes)
        if self._select_full(depths, submissions, numbers):
            # A full queue refuses no Submission whose identifier or unique key exists already.
            numbers -= self._store.filling.taken(self._type.identifier, submissions)
        delays: dict[int, timedelta] = {}
        for depth in self._select_full(depths, submissions, numbers):
            own = _numbers_within(depth.fill, submissions, numbers)
            firm = {n for n in own if options[n].on_full == "raise"}
            if firm and depth.overflow(len(firm), _least_priority(submissions, firm)):
                raise self._refusal(depth, submissions, firm)
            overflow = depth.overflow(len(own), _least_priority(submissions, own))
            for number in sorted(own - firm)[-overflow:]:
                delay = self._delay(options[number], overflow)
                delays[number] = max(delay, delays.get(number, delay))
            self._full_targets.append((depth.fill, min(overflow, len(own - firm))))
        for depth in depths:
            depth.added += len(_numbers_within(depth.fill, submissions, numbers))
        return self._postpone(submissions, delays) if delays else submissions

    def _read_depths(self, lanes: set[str]) -> list[QueueDepthCount]:
        """Return the queue depths of the Type and of these lanes, leaving out unlimited ones."""
        name, known = self._type.identifier, self._known
        targets = [None, *(lanes if known.types.get(name) else ())]
        now, kept = monotonic(), known.depths
        old = [t for t in targets if (name, t) not in kept or not kept[name, t].holds(now)]
        if old:
            declared = {
                "max_waiting": self._type.max_waiting,
                "max_wait": as_timedelta(self._type.max_wait),
            }
            fills = self._store.filling.fills(name, old, declared)
            counted = monotonic()
            again = counted + PART * (counted - now)
            if len(kept) > MOST:
                kept.clear()
            for target in old:
                until = max(counted + KEPT, again)
                kept[name, target] = QueueDepthCount(fills[target], until, again)
        # Another thread may have cleared the cache meanwhile.
        depths = [kept.get((name, target)) for target in targets]
        return [each for each in depths if each is not None and each.fill.is_bounded]

    @staticmethod
    def _select_full(
        depths: list[QueueDepthCount], submissions: Sequence[Submission], numbers: set[int]
    ) -> list[QueueDepthCount]:
        """Return those of the queue depths that leave too little room for the Submissions."""
        full = []
        for depth in depths:
            own = _numbers_within(depth.fill, submissions, numbers)
            if own and depth.overflow(len(own), _least_priority(submissions, own)):
                full.append(depth)
        return full

    def _refusal(
        self, depth: QueueDepthCount, submissions: Sequence[Submission], own: set[int]
    ) -> Exception:
        """Return the exception for Submissions that do not fit, and note them for the log."""
        fill, count, priority = depth.fill, len(own), _least_priority(submissions, own)
        target = describe_target(fill.type, fill.collection)
        headroom = fill.room(priority)
        if headroom is not None and count > headroom and fill.max_wait is None:
            return InvalidOption(
                f"{target} can never take {count} Instances at once, because "
                f"{describe_headroom(fill, priority)}. Enqueue fewer at a time."
            )
        self._full_targets.append((fill, count))
        overflow = depth.overflow(count, priority)
        after = min(LONGEST, max(SHORTEST, self._seconds(overflow)))
        waiting = fill.waiting + depth.added
        return QueueFull(
            describe_full_queue(fill, waiting, priority, after),
            scope=target,
            waiting=waiting,
            limit=fill.max_waiting,
            oldest=fill.oldest,
            retry_after=after,
        )

    def _seconds(self, overflow: int) -> float:
        """Return in how many seconds ``overflow`` waiting Instances should have started.

        The number varies at random by 20%, so that clients do not try again all at once.
        """
        name, now = self._type.identifier, monotonic()
        rate, until = self._known.drains.get(name, (0.0, 0.0))
        if until <= now:
            rate = self._store.filling.drain_rate(name, WINDOW)
            self._known.drains[name] = rate, now + DRAINED
        needed = overflow / rate if rate else NOTHING_DRAINS
        return needed * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311

    def _delay(self, options: Options, overflow: int) -> timedelta:
        tolerance = as_timedelta(options.delay_tolerance)
        assert tolerance is not None
        return min(tolerance, timedelta(seconds=max(SHORTEST, self._seconds(overflow))))

    def _postpone(
        self, submissions: Sequence[Submission], delays: dict[int, timedelta]
    ) -> list[Submission]:
        """Return the Submissions after adding each of ``delays`` to a due time.

        The keys of ``delays`` are positions in ``submissions``.
        """
        now, postponed = self._store.now(), list(submissions)
        for number, delay in delays.items():
            each = postponed[number]
            due = each.due or now
            # The delay never makes the Submission miss its start_before.
            most = None if each.start_before is None else (each.start_before - due) / 2
            later = due + (delay if most is None else min(delay, most))
            postponed[number] = each._replace(due=later)
        return postponed

    def log_full_targets(self) -> None:
        """Log each Type or lane that was full, at most once a minute.

        The record says how many enqueues were refused or delayed since the last record.
        """
        for fill, count in self._full_targets:
            self._log_full(fill, count)

    def _log_full(self, fill: Fill, count: int) -> None:
        key, now = (fill.type, fill.collection), monotonic()
        before, again = self._known.refused.get(key, (0, 0.0))
        count += before
        if now >= again:
            again = now + TOLD
            _log.warning(
                "%s is full: %d enqueues were refused or delayed", describe_target(*key), count
            )
            with suppress(DatabaseError):
                if self._store.filling.log_full(fill, count, seconds=TOLD):
                    count = 0
        self._known.refused[key] = count, again


def _may_be_old(depth: QueueDepthCount) -> bool:
    """Return True if a count is outdated because Tasks enqueued after it may have started."""
    return depth.added > 0 and depth.again <= monotonic()


def _numbers_within(fill: Fill, submissions: Sequence[Submission], numbers: set[int]) -> set[int]:
    """Return the positions in ``submissions`` that a Fill counts, out of those in ``numbers``.

    A Fill for a lane counts only the Submissions in that lane; a Fill for a Type counts all.
    """
    if fill.collection is None:
        return numbers
    return {number for number in numbers if submissions[number].collection == fill.collection}


def _least_priority(submissions: Sequence[Submission], numbers: set[int]) -> int:
    return min(submissions[number].priority for number in numbers)


def describe_headroom(fill: Fill, priority: int) -> str:
    """Return a clause that says how many Instances of this priority may wait."""
    headroom = fill.room(priority)
    if headroom == fill.max_waiting:
        return f"at most {headroom} may wait there"
    return f"at most {headroom} of {fill.max_waiting} may wait there at priority {priority}"


def describe_full_queue(fill: Fill, waiting: int, priority: int, after: float) -> str:
    """Return a sentence that says why ATP refused an enqueue.

    ``waiting`` is the number of waiting Instances, and ``after`` the number of seconds that a
    client should wait before it tries again.
    """
    reasons = []
    if fill.max_waiting is not None:
        reasons.append(f"{waiting} wait, and {describe_headroom(fill, priority)}")
    if fill.max_wait is not None:
        oldest, most = map(duration, (fill.oldest, fill.max_wait))
        reasons.append(f"the oldest has waited {oldest}, longer than {most}")
    target = describe_target(fill.type, fill.collection)
    return f"{target} is full: {'; '.join(reasons)}. Try again in {after:.0f} s."

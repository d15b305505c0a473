"""Refuse or delay an enqueue while too many Tasks wait (`max_waiting`, `max_wait`).

A process remembers the queue depth of a target (a Type or a lane) for a quarter of a second, and
adds its own enqueues to it. It counts again earlier once it has added more than 1/64 of the
headroom, or more than 1/1000 of the depth. So each process may exceed ``max_waiting`` by that many,
unless enqueues take turns (``exact``). Threads share the count without a lock: a lost addition
lets in a few more.
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
    from ..store.contract import Store
    from ..store.values.scopes import Fill
    from ..store.values.submissions import Submission
    from .registry import Declaration


# In seconds: how long this process remembers which Types operators have limited.
KNOWN = 5.0
# The parts of the headroom, and of the queue depth, that a process enqueues between two counts.
HEADROOM_PART, DEPTH_PART = 64, 1000
# In seconds: how long a count is kept. It is kept for longer if it took long, so that counting
# takes at most one part in PART of the time.
KEPT, PART = 0.25, 20
# In seconds: how long the drain rate of a Type is kept.
DRAINED = 5.0
# In seconds: the window of the drain rate, and the time between two log records of a full target.
WINDOW, TOLD = 300.0, 60.0
# In seconds: how long a client should wait if nothing drains, and otherwise the range of that time.
NOTHING_DRAINS, SHORTEST, LONGEST = 30.0, 1.0, 600.0
JITTER = 0.2
# The most targets whose counts are kept.
MOST = 10_000

_log = logging.getLogger("atp")


# What a process remembers


class QueueDepthCount:
    """The queue depth of a target (a Fill), the time until which it holds, and later enqueues.

    ``added`` is how many Tasks this process has enqueued since. ``again`` is the earliest time for
    a new count if the target is full only because of them: some may have started meanwhile.
    """

    def __init__(self, fill: Fill, until: float, again: float) -> None:
        self.fill, self.until, self.again, self.added = fill, until, again, 0
        headroom = fill.room(0)
        left = 0 if headroom is None else max(1, (headroom - fill.waiting) // HEADROOM_PART)
        self._most = max(left, fill.waiting // DEPTH_PART) if left else inf

    def holds(self, now: float) -> bool:
        """Return True if another enqueue may use the count."""
        return now < self.until and self.added < self._most

    def overflow(self, count: int, priority: int) -> int:
        """Return how many Tasks have to start before ``count`` more fit; 0 if they fit."""
        return self.fill.excess(count + self.added, priority)


class KnownCounts:
    """The counts and rates that this process remembers about one database."""

    def __init__(self) -> None:
        self.until = 0.0
        # By the identifier of a limited Type: True if one of its lanes has its own limit.
        self.types: dict[str, bool] = {}
        self.depths: dict[tuple[str, str | None], QueueDepthCount] = {}
        # By Type: its drain rate, and the time until which it holds.
        self.drains: dict[str, tuple[float, float]] = {}
        # By target: the refusals since the last log record, and the earliest time of the next.
        self.refused: dict[tuple[str, str | None], tuple[int, float]] = {}


_known: defaultdict[str, KnownCounts] = defaultdict(KnownCounts)


def forget_counts() -> None:
    """Forget all counts, after limits have changed and between tests."""
    _known.clear()


def known_counts(store: Store) -> KnownCounts:
    """Return the counts that this process remembers about the store's database."""
    return _known[store.alias]


def is_limited(store: Store, task_type: Declaration) -> bool:
    """Return True if the code or, as last read, an operator limits a Type's waiting Tasks."""
    known = known_counts(store)
    if monotonic() >= known.until:
        known.types, known.until = store.bounded(), monotonic() + KNOWN
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
    """Yield the Submissions to a Type that may be enqueued: all of them, or none.

    ``options`` are the options of each. With ``on_full="delay"`` a Submission may come back with a
    later due time. Raises QueueFull; or InvalidOption for more Submissions than can ever fit.
    """
    admission = _Admission(store, task_type)
    try:
        if any(each.exact for each in options):
            with store.enqueueing_alone(task_type.registration()):
                known_counts(store).depths.clear()
                yield admission.admit(submissions, options)
        else:
            yield admission.admit(submissions, options)
    finally:
        # After the transaction: a refusal rolls it back, and the log record has to stay.
        admission.log_full_targets()


class _Admission:
    """The admission of Submissions to one Type that are enqueued together."""

    def __init__(self, store: Store, task_type: Declaration) -> None:
        self._store, self._type = store, task_type
        self._known = known_counts(store)
        self._full_targets: list[tuple[Fill, int]] = []

    def admit(
        self, submissions: Sequence[Submission], options: Sequence[Options]
    ) -> Sequence[Submission]:
        """Return the Submissions, some with a later due time. Raises QueueFull, InvalidOption."""
        lanes = {each.collection for each in submissions}
        depths, numbers = self._read_depths(lanes), set(range(len(submissions)))
        full = self._select_full(depths, submissions, numbers)
        if old := [depth for depth in full if _may_be_old(depth)]:
            for depth in old:
                depth.until = 0.0
            depths = self._read_depths(lanes)
        if self._select_full(depths, submissions, numbers):
            # A full queue refuses no Submission whose identifier or unique key exists already.
            numbers -= self._store.taken(self._type.identifier, submissions)
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
        """Return the queue depths of the Type and these lanes, as far as they have a limit."""
        name, known = self._type.identifier, self._known
        targets = [None, *(lanes if known.types.get(name) else ())]
        now, kept = monotonic(), known.depths
        old = [t for t in targets if (name, t) not in kept or not kept[name, t].holds(now)]
        if old:
            declared = {
                "max_waiting": self._type.max_waiting,
                "max_wait": as_timedelta(self._type.max_wait),
            }
            fills = self._store.fills(name, old, declared)
            counted = monotonic()
            again = counted + PART * (counted - now)
            if len(kept) > MOST:
                kept.clear()
            for target in old:
                until = max(counted + KEPT, again)
                kept[name, target] = QueueDepthCount(fills[target], until, again)
        # Another thread may have forgotten one meanwhile.
        depths = [kept.get((name, target)) for target in targets]
        return [each for each in depths if each is not None and each.fill.is_bounded]

    @staticmethod
    def _select_full(
        depths: list[QueueDepthCount], submissions: Sequence[Submission], numbers: set[int]
    ) -> list[QueueDepthCount]:
        """Return the depths of the targets in which not all of the Submissions fit."""
        full = []
        for depth in depths:
            own = _numbers_within(depth.fill, submissions, numbers)
            if own and depth.overflow(len(own), _least_priority(submissions, own)):
                full.append(depth)
        return full

    def _refusal(
        self, depth: QueueDepthCount, submissions: Sequence[Submission], own: set[int]
    ) -> Exception:
        """Return the exception for Submissions that do not fit; remember them for the log."""
        fill, count, priority = depth.fill, len(own), _least_priority(submissions, own)
        target = describe_target(fill.type, fill.collection)
        headroom = fill.room(priority)
        if headroom is not None and count > headroom and fill.max_wait is None:
            return InvalidOption(
                f"{count} at once never fit into {target}: {describe_headroom(fill, priority)}. "
                "Enqueue fewer at a time."
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
        """Return the seconds until ``overflow`` Instances will have drained, with 20% jitter."""
        name, now = self._type.identifier, monotonic()
        rate, until = self._known.drains.get(name, (0.0, 0.0))
        if until <= now:
            rate = self._store.drain_rate(name, WINDOW)
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
        """Return the Submissions with the due times of some, by number, made later."""
        now, postponed = self._store.now(), list(submissions)
        for number, delay in delays.items():
            each = postponed[number]
            due = each.due or now
            # A delay never makes it miss its start_before.
            most = None if each.start_before is None else (each.start_before - due) / 2
            later = due + (delay if most is None else min(delay, most))
            postponed[number] = each._replace(due=later)
        return postponed

    def log_full_targets(self) -> None:
        """Log the targets that were full, each at most once a minute, with all refusals since."""
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
                if self._store.log_full(fill, count, seconds=TOLD):
                    count = 0
        self._known.refused[key] = count, again


def _may_be_old(depth: QueueDepthCount) -> bool:
    """Return True if fewer Tasks may wait than counted, as some of the added may have started."""
    return depth.added > 0 and depth.again <= monotonic()


def _numbers_within(fill: Fill, submissions: Sequence[Submission], numbers: set[int]) -> set[int]:
    """Return the numbers of the Submissions that are in the target of a Fill."""
    if fill.collection is None:
        return numbers
    return {number for number in numbers if submissions[number].collection == fill.collection}


def _least_priority(submissions: Sequence[Submission], numbers: set[int]) -> int:
    return min(submissions[number].priority for number in numbers)


def describe_headroom(fill: Fill, priority: int) -> str:
    """Return in words how many Instances may wait at this priority."""
    headroom = fill.room(priority)
    if headroom == fill.max_waiting:
        return f"at most {headroom} may wait there"
    return f"at most {headroom} of {fill.max_waiting} may wait there at priority {priority}"


def describe_full_queue(fill: Fill, waiting: int, priority: int, after: float) -> str:
    """Return why ATP refused an enqueue; a client may try again ``after`` that many seconds."""
    reasons = []
    if fill.max_waiting is not None:
        reasons.append(f"{waiting} wait, and {describe_headroom(fill, priority)}")
    if fill.max_wait is not None:
        oldest, most = map(duration, (fill.oldest, fill.max_wait))
        reasons.append(f"the oldest has waited {oldest}, longer than {most}")
    target = describe_target(fill.type, fill.collection)
    return f"{target} is full: {'; '.join(reasons)}. Try again in {after:.0f} s."

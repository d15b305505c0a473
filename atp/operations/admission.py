"""Refusing or delaying an enqueue when too many wait (`max_waiting`, `max_wait`), with the counts
a process remembers.
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

from .. import text
from ..exceptions import InvalidOption, QueueFull
from ..text import seconds, where

if TYPE_CHECKING:
    from ..options import Options
    from ..store.contract import Store
    from ..store.values.scopes import Fill
    from ..store.values.submissions import Submission
    from .registry import Declaration


# Overload: the numbers of waiting Tasks that a process remembers, and when it counts them again.
#
# A process keeps the count of a scope (a Type or a lane) for a quarter of a second, and adds its
# own enqueues to it. It counts again earlier if it has added more than 1/64 of the free room, or
# more than 1/1000 of the count. Each process that enqueues may thus exceed ``max_waiting`` by that
# many, unless enqueues take turns (``exact``). Threads share the count without a lock: a lost
# addition allows a few more.

# How long this process remembers which Types operators have limited, in seconds.
KNOWN = 5.0
# The part of the room, and of what was counted, that a process enqueues between two looks.
OF_ROOM, OF_COUNT = 64, 1000


class Look:
    """A count of a scope (a Fill), the time until which it holds, and the number of enqueues since.

    ``again`` is the earliest time for a new count if the scope is full only because of the own
    enqueues: some of these may have been started meanwhile.
    """

    def __init__(self, fill: Fill, until: float, again: float) -> None:
        self.fill, self.until, self.again, self.added = fill, until, again, 0
        room = fill.room(0)
        left = 0 if room is None else max(1, (room - fill.waiting) // OF_ROOM)
        self._most = max(left, fill.waiting // OF_COUNT) if left else inf

    def holds(self, now: float) -> bool:
        """Whether the count may be used for another enqueue."""
        return now < self.until and self.added < self._most

    def excess(self, count: int, priority: int) -> int:
        return self.fill.excess(count + self.added, priority)


class Known:
    """The counts and rates that this process has of one database."""

    def __init__(self) -> None:
        self.until = 0.0
        # The limited Types by identifier, with whether one of their lanes has a limit of its own.
        self.types: dict[str, bool] = {}
        self.looks: dict[tuple[str, str | None], Look] = {}
        self.drains: dict[str, tuple[float, float]] = {}
        # By scope: the refusals since the last log record, and the earliest time of the next.
        self.refused: dict[tuple[str, str | None], tuple[int, float]] = {}


_known: defaultdict[str, Known] = defaultdict(Known)


def forget() -> None:
    """Forget all counts: after limits have changed, and between tests."""
    _known.clear()


def known_of(store: Store) -> Known:
    """Return the counts that this process has of the store's database."""
    return _known[store.alias]


def looks_at(store: Store, task_type: Declaration) -> bool:
    """Whether waiting Tasks of a Type are limited, by code or, as last read, by an operator."""
    known = known_of(store)
    if monotonic() >= known.until:
        known.types, known.until = store.bounded(), monotonic() + KNOWN
    return (
        task_type.max_waiting is not None
        or task_type.max_wait is not None
        or task_type.identifier in known.types
    )


# Admission: Submissions of a limited Type are let in, delayed, or refused.

# How long a Look at a scope is kept, in seconds. It is kept for longer if it took long, so that
# looks take at most one part in PART of the time.
KEPT, PART = 0.25, 20
# How long the drain rate of a Type is kept, in seconds.
DRAINED = 5.0
# In seconds, the window of the drain rate, and the time between two log records of a full scope.
WINDOW, TOLD = 300.0, 60.0
# The seconds that a client is told to wait: if nothing drains, and otherwise their range.
NOTHING_DRAINS, SHORTEST, LONGEST = 30.0, 1.0, 600.0
JITTER = 0.2
# The maximum number of scopes that are kept.
MOST = 10_000

_log = logging.getLogger("atp")


@contextmanager
def admitted(
    store: Store,
    task_type: Declaration,
    submissions: Sequence[Submission],
    options: Sequence[Options],
) -> Iterator[Sequence[Submission]]:
    """Yield the Submissions of a Type that may be enqueued: all of them, or none.

    ``options`` are the options of each. With ``on_full="delay"`` a Submission may come back with a
    later due time. Raises QueueFull; or InvalidOption if there are more than can ever fit.
    """
    admission = _Admission(store, task_type)
    try:
        if any(each.exact for each in options):
            with store.enqueueing_alone(task_type.registration()):
                known_of(store).looks.clear()
                yield admission.of(submissions, options)
        else:
            yield admission.of(submissions, options)
    finally:
        # After the transaction: what is refused rolls it back, and the log record stays.
        admission.tell()


class _Admission:
    """The admission of Submissions of one Type that are enqueued together."""

    def __init__(self, store: Store, task_type: Declaration) -> None:
        self._store, self._type = store, task_type
        self._known = known_of(store)
        self._full_scopes: list[tuple[Fill, int]] = []

    def of(
        self, submissions: Sequence[Submission], options: Sequence[Options]
    ) -> Sequence[Submission]:
        lanes = {each.collection for each in submissions}
        looks, numbers = self._looks(lanes), set(range(len(submissions)))
        old = [look for look in self._full(looks, submissions, numbers) if _may_be_old(look)]
        if old:
            for look in old:
                look.until = 0.0
            looks = self._looks(lanes)
        if self._full(looks, submissions, numbers):
            # A full queue refuses no Submission whose identifier or unique key exists already.
            numbers -= self._store.taken(self._type.identifier, submissions)
        shifted: dict[int, timedelta] = {}
        for look in self._full(looks, submissions, numbers):
            own = _of_scope(look.fill, submissions, numbers)
            firm = {n for n in own if options[n].on_full == "raise"}
            if firm and look.excess(len(firm), _least(submissions, firm)):
                raise self._refused(look, submissions, firm)
            excess = look.excess(len(own), _least(submissions, own))
            for number in sorted(own - firm)[-excess:]:
                delay = self._delay(submissions[number], options[number], excess)
                shifted[number] = max(delay, shifted.get(number, delay))
            self._full_scopes.append((look.fill, min(excess, len(own - firm))))
        for look in looks:
            look.added += len(_of_scope(look.fill, submissions, numbers))
        return self._shift(submissions, shifted) if shifted else submissions

    def _looks(self, lanes: set[str]) -> list[Look]:
        """Return the Looks at those of the scopes, the Type and these lanes, that have a limit."""
        name, known = self._type.identifier, self._known
        scopes = [None, *(lanes if known.types.get(name) else ())]
        now, kept = monotonic(), known.looks
        old = [s for s in scopes if (name, s) not in kept or not kept[name, s].holds(now)]
        if old:
            declared = {
                "max_waiting": self._type.max_waiting,
                "max_wait": seconds(self._type.max_wait),
            }
            fills = self._store.fills(name, old, declared)
            found_at = monotonic()
            again = found_at + PART * (found_at - now)
            if len(kept) > MOST:
                kept.clear()
            for scope in old:
                kept[name, scope] = Look(fills[scope], max(found_at + KEPT, again), again)
        # Another thread may have forgotten one meanwhile.
        found = [kept.get((name, scope)) for scope in scopes]
        return [look for look in found if look is not None and look.fill.is_bounded]

    @staticmethod
    def _full(
        looks: list[Look], submissions: Sequence[Submission], numbers: set[int]
    ) -> list[Look]:
        full = []
        for look in looks:
            own = _of_scope(look.fill, submissions, numbers)
            if own and look.excess(len(own), _least(submissions, own)):
                full.append(look)
        return full

    def _refused(self, look: Look, submissions: Sequence[Submission], own: set[int]) -> Exception:
        """Return the exception for Submissions that do not fit; record the refusal in the log."""
        fill, count, priority = look.fill, len(own), _least(submissions, own)
        scope = text.where(fill.type, fill.collection)
        room = fill.room(priority)
        if room is not None and count > room and fill.max_wait is None:
            return InvalidOption(
                f"{count} at once never fit into {scope}: {of_room(fill, priority)}. "
                "Enqueue fewer at a time."
            )
        self._full_scopes.append((fill, count))
        excess = look.excess(count, priority)
        after = min(LONGEST, max(SHORTEST, self._seconds(excess)))
        waiting = fill.waiting + look.added
        return QueueFull(
            full(fill, waiting, priority, after),
            scope=scope,
            waiting=waiting,
            limit=fill.max_waiting,
            oldest=fill.oldest,
            retry_after=after,
        )

    def _seconds(self, excess: int) -> float:
        """Return the seconds until ``excess`` Instances will have drained, with 20% of jitter."""
        name, now = self._type.identifier, monotonic()
        rate, until = self._known.drains.get(name, (0.0, 0.0))
        if until <= now:
            rate = self._store.drain_rate(name, WINDOW)
            self._known.drains[name] = rate, now + DRAINED
        found = excess / rate if rate else NOTHING_DRAINS
        return found * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311

    def _delay(self, submission: Submission, options: Options, excess: int) -> timedelta:
        tolerance = seconds(options.delay_tolerance)
        assert tolerance is not None
        return min(tolerance, timedelta(seconds=max(SHORTEST, self._seconds(excess))))

    def _shift(
        self, submissions: Sequence[Submission], shifted: dict[int, timedelta]
    ) -> list[Submission]:
        now, made = self._store.now(), list(submissions)
        for number, delay in shifted.items():
            each = made[number]
            due = each.due or now
            # It is never too late because of its delay.
            last = None if each.start_before is None else (each.start_before - due) / 2
            made[number] = each._replace(due=due + (delay if last is None else min(delay, last)))
        return made

    def tell(self) -> None:
        """Log which scopes were full, each at most once a minute, with all refusals since then."""
        for fill, count in self._full_scopes:
            self._tell(fill, count)

    def _tell(self, fill: Fill, count: int) -> None:
        key, now = (fill.type, fill.collection), monotonic()
        before, again = self._known.refused.get(key, (0, 0.0))
        count += before
        if now >= again:
            again = now + TOLD
            scope = text.where(*key)
            _log.warning("%s is full: %d enqueues were refused or delayed", scope, count)
            with suppress(DatabaseError):
                if self._store.log_full(fill, count, seconds=TOLD):
                    count = 0
        self._known.refused[key] = count, again


def _may_be_old(look: Look) -> bool:
    """Whether fewer may wait than a Look says, as some of the added may have started."""
    return look.added > 0 and look.again <= monotonic()


def _of_scope(fill: Fill, submissions: Sequence[Submission], numbers: set[int]) -> set[int]:
    """Return the numbers of the Submissions that are in the scope of a Fill."""
    if fill.collection is None:
        return numbers
    return {number for number in numbers if submissions[number].collection == fill.collection}


def _least(submissions: Sequence[Submission], numbers: set[int]) -> int:
    return min(submissions[number].priority for number in numbers)


def of_room(fill: Fill, priority: int) -> str:
    """Return in words how many Instances may wait at this priority."""
    room = fill.room(priority)
    if room == fill.max_waiting:
        return f"at most {room} may wait there"
    return f"at most {room} of {fill.max_waiting} may wait there at priority {priority}"


def full(fill: Fill, waiting: int, priority: int, after: float) -> str:
    """Return why an enqueue was refused; ``after`` is the seconds after which to try again."""
    told = []
    if fill.max_waiting is not None:
        told.append(f"{waiting} wait, and {of_room(fill, priority)}")
    if fill.max_wait is not None:
        oldest, most = map(text.duration, (fill.oldest, fill.max_wait))
        told.append(f"the oldest has waited {oldest}, longer than {most}")
    scope = where(fill.type, fill.collection)
    return f"{scope} is full: {'; '.join(told)}. Try again in {after:.0f} s."

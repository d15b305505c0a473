"""The Types `atp.redrive`, `atp.cancel` and `atp.delete`.

Each of them applies an operation to all Instances that match a filter.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from django.db.models import F, Window
from django.db.models.functions import RowNumber

from ..authoring.task_type import task_type
from ..conf import settings
from ..exceptions import Defer, Fatal
from ..models import ErrorGroup, Instance
from ..operations import gates
from ..operations.matching import CANCEL, DELETE, REDRIVE, Judge, Selection
from ..states import Event, State
from ..store import get_store
from ..store.values import Move
from ..text import number

# The maximum number of Instances to which one transaction applies the operation.
PORTION = 100
# In seconds: the shortest wait for the rate, and the longest during which it keeps its worker.
SHORTEST, LONGEST = 0.1, 5.0
_MAX_WHO = 200

# A redrive judges this many of the last ends, once there are at least FEWEST.
WATCHED, FEWEST = 100, 20
# It waits for the ends of at most this many redriven Instances at a time.
MOST_WATCHED = 2000
# It reads at least this many dead letters at a time to choose the canary.
CHOSEN_FROM = 2000
# In seconds: the interval at which it reads ends, and the time after which it frees its worker.
LOOK_EVERY, PATIENCE = 1.0, 3.0
SHORTEST_WAIT, LONGEST_WAIT = 1.0, 15.0


# Applying an operation to a selection: in portions, and at a rate.


class BulkOperation:
    """One attempt to apply an operation to a selection of Instances.

    It needs no stored cursor, because an Instance that is done is no longer in the selection. It
    passes over Instances to which the operation cannot be applied; the next attempt tries these
    again.
    """

    def __init__(
        self, context: Any, selection: Selection, count: int, rate: str | None, by: str
    ) -> None:
        self.context = context
        self.selection = selection
        self.count = count
        self.who = _describe_actor(by, selection.verb, context.uuid)
        self._per_second = None if rate is None else gates.per_second(rate)
        self._judge = Judge(selection.verb)
        self._after = 0
        # Instances to which the operation cannot be applied stay in the selection, and ``count``
        # does not include them.
        now = selection.rows().count()
        self._done = max(0, context.step("matched", lambda: now) - now)
        self._left: Counter[str] = Counter()
        self._since, self._sent = time.monotonic(), 0

    def run(self) -> dict[str, Any]:
        """Apply the operation to all Instances in the selection; return the Response."""
        while True:
            self.look()
            portion = self._next_portion(self._wait_for_rate())
            if not portion:
                break
            self.do(portion)
        self.context.progress(1.0)
        return {"done": self._done, "left": {why: n for why, n in self._left.items() if n}}

    def look(self) -> None:
        """End or pause this attempt if an operator has commanded it.

        The time of a pause does not count for the rate.
        """
        before = time.monotonic()
        self.context.check()
        self._since += time.monotonic() - before

    def _next_portion(self, size: int) -> list[Instance]:
        rows = self.selection.rows().filter(pk__gt=self._after).order_by("pk")
        portion = list(rows[:size])
        if portion:
            self._after = portion[-1].pk
        return portion

    def _wait_for_rate(self) -> int:
        """Wait until the rate allows more Instances, and return how many.

        Raises Defer if the wait would be long.
        """
        if self._per_second is None:
            return PORTION
        while True:
            allowed = int(self._per_second * (time.monotonic() - self._since)) + 1 - self._sent
            if allowed >= 1:
                return min(allowed, PORTION)
            pause = (self._sent / self._per_second) - (time.monotonic() - self._since)
            if pause > LONGEST:
                raise Defer("the rate does not allow the next Instance yet", after=pause)
            self.idle(max(SHORTEST, min(pause, 1.0)))

    def idle(self, seconds: float) -> None:
        """Wait for some seconds, then end or pause this attempt if an operator has commanded it."""
        time.sleep(seconds)
        self.look()

    def do(self, portion: Sequence[Instance]) -> list[int]:
        """Apply the operation to some Instances, in one transaction.

        Return the primary keys of the Instances to which it was applied. The log of each Instance
        names the Instance of this attempt.
        """
        cannot = self._judge.cannot(portion)
        self._left.update(cannot.values())
        keys = [instance.pk for instance in portion if instance.pk not in cannot]
        done = _DO[self.selection.verb](keys, self.who) if keys else []
        self._left[_REFUSED[self.selection.verb]] += len(keys) - len(done)
        self._sent += len(done)
        self._done += len(done)
        message = f"{number(self._done)} of {number(self.count)}"
        self.context.progress(self._done, max(self.count, 1), message)
        return done


def _describe_actor(by: str, operation: str, uuid: object) -> str:
    label = f" ({operation} {uuid})"
    return f"{by[: _MAX_WHO - len(label)]}{label}".strip()


def _redrive(keys: list[int], who: str) -> list[int]:
    moves = [Move(event=Event.REDRIVE, instance=key, who=who) for key in keys]
    refused = {move.instance for move in get_store().records.record(moves)}
    return [key for key in keys if key not in refused]


def _cancel(keys: list[int], who: str) -> list[int]:
    found = get_store().control.cancel(keys, who=who)
    return sorted({*found.failed, *found.asked})


def _delete(keys: list[int], who: str) -> list[int]:
    get_store().removal.purge(instances=keys, limit=len(keys), who=who)
    left = set(Instance.objects.using(get_store().alias).in_bulk(keys))
    return [key for key in keys if key not in left]


# The reasons for which the store may refuse Instances that the plan has counted.
_REFUSED = {
    REDRIVE: "it has changed, or a node before it is FAILED",
    CANCEL: "it has ended",
    DELETE: "it is locked by somebody, or its files cannot be removed",
}
_DO = {REDRIVE: _redrive, CANCEL: _cancel, DELETE: _delete}


# Redriving a selection: a canary first, then the others, as long as enough of them FINISHED.


class BulkRedrive(BulkOperation):
    """One attempt to redrive a selection. It redrives a canary first, if one is requested.

    If too few Instances of the canary have FINISHED, the attempt fails and names the errors. The
    same happens if, later, too few of the Instances that ended last have FINISHED. The dead letters
    that were not redriven yet stay as they are, and another redrive can take them.
    """

    def __init__(
        self,
        context: Any,
        selection: Selection,
        count: int,
        rate: str | None,
        by: str,
        canary: int,
        threshold: float,
    ) -> None:
        super().__init__(context, selection, count, rate, by)
        self._canary, self._threshold = canary, threshold
        # The keys of the Instances redriven last, in order, each with its time.
        self._last: dict[int, float] = {}
        self._read_at = time.monotonic()

    def run(self) -> dict[str, Any]:
        if self._canary:
            keys = self.context.step("canary", self._choose_canary)
            self._wait_for(self._redriven(keys))
        return super().run()

    def _choose_canary(self) -> list[int]:
        """Choose Instances of each Type and collection for the canary; return their keys."""
        lane = Window(RowNumber(), partition_by=[F("type"), F("collection")], order_by="pk")
        rows = self.selection.rows().annotate(turn=lane).order_by("turn", "pk")
        chosen: list[int] = []
        offset = 0
        while len(chosen) < self._canary:
            self.look()
            portion = list(rows[offset : offset + max(CHOSEN_FROM, 2 * self._canary)])
            if not portion:
                break
            offset += len(portion)
            cannot = self._judge.cannot(portion)
            chosen += [each.pk for each in portion if each.pk not in cannot]
        return sorted(chosen[: self._canary])

    def _redriven(self, keys: Sequence[int]) -> list[int]:
        """Redrive the canary; return the primary keys of its Instances that were redriven.

        An earlier attempt may have redriven some of them. Raises Fatal if none could be redriven.
        """
        rows = self.selection.rows().filter(pk__in=keys).order_by("pk")
        done = self.do(list(rows))
        if done:
            self.context.log(f"canary: {len(done)} redriven")
        # Instances that were redriven are not in the selection any more.
        refused = set(rows.values_list("pk", flat=True))
        redriven = [key for key in keys if key not in refused]
        if keys and not redriven:
            raise Fatal(
                f"stopped: none of {len(keys)} canaries could be redriven.", fingerprint="stopped"
            )
        return redriven

    def _wait_for(self, keys: Sequence[int]) -> None:
        """Wait until the canary has ended. If that takes long, raise Defer to free the worker."""
        began = time.monotonic()
        while True:
            ends = _Ends(keys)
            if not ends.live:
                break
            message = f"canary: {len(keys) - len(ends.live)} of {len(keys)} have ended"
            self.context.progress(self._done, max(self.count, 1), message)
            if time.monotonic() - began > PATIENCE:
                wait = min(LONGEST_WAIT, SHORTEST_WAIT + self.context.attempt / 4)
                raise Defer(message, after=wait)
            self.idle(0.2)
        self._judge_ends(ends, "canaries")
        self.context.log(f"canary: {ends.finished} of {len(keys)} FINISHED")

    def _judge_ends(self, ends: _Ends, what: str) -> None:
        """Raise Fatal if too few of these ended Instances FINISHED."""
        ended = ends.finished + len(ends.failed)
        if ended and ends.finished < self._threshold * ended:
            left = self.selection.rows().count()
            raise Fatal(
                f"stopped: {len(ends.failed)} of {ended} {what} FAILED, but at most "
                f"{1 - self._threshold:.0%} may: {ends.describe_errors()}. Not redriven: "
                f"{number(left)}.",
                fingerprint="stopped",
            )

    def do(self, portion: Sequence[Instance]) -> list[int]:
        done = super().do(portion)
        now = time.monotonic()
        # A larger sample would tell no more, but take longer to read.
        headroom = MOST_WATCHED - len(self._last)
        self._last |= dict.fromkeys(done[: max(0, headroom)], now)
        self._watch(now)
        return done

    def idle(self, seconds: float) -> None:
        super().idle(seconds)
        self._watch(time.monotonic())

    def _watch(self, now: float) -> None:
        """Check, at an interval, how the Instances that were redriven last are doing.

        Raises Fatal if too few of those that ended have FINISHED, and Defer if none has started.
        """
        if now - self._read_at < LOOK_EVERY or not self._last:
            return
        self._read_at = now
        ends = _Ends(list(self._last), last=WATCHED)
        if self._canary and ends.finished + len(ends.failed) >= FEWEST:
            self._judge_ends(ends, f"of the last {WATCHED}")
        for key in ends.ended[:-WATCHED]:
            del self._last[key]
        oldest = next(iter(self._last.values()), now)
        if ends.is_stuck and now - oldest > PATIENCE:
            raise Defer("none of the redriven Instances has started", after=SHORTEST_WAIT)


class _Ends:
    """How redriven Instances ended. If ``last`` is set, only that many of the latest ends count."""

    def __init__(self, keys: Sequence[int], last: int | None = None) -> None:
        rows = Instance.objects.using(settings.DATABASE).filter(pk__in=keys)
        found = {row[0]: row[1:] for row in rows.values_list("pk", "state", "finished", "error_id")}
        times = {key: finished for key, (_, finished, _) in found.items() if finished is not None}
        self.live = [key for key in found if key not in times]
        # An Instance without a row has FINISHED: its Type does not keep such Instances.
        removed = [key for key in keys if key not in found]
        self.ended = removed + sorted(times, key=times.__getitem__)
        counted = self.ended if last is None else self.ended[-last:]
        self.failed = [key for key in counted if key in found and found[key][0] == State.FAILED]
        self.finished = len(counted) - len(self.failed)
        waiting = [key for key in self.live if found[key][0] == State.ACCEPTED]
        self.is_stuck = bool(waiting) and len(waiting) == len(keys)
        self._errors = Counter(found[key][2] for key in self.failed)

    def describe_errors(self) -> str:
        """Return the errors of the FAILED Instances in words, the most frequent first."""
        keys = [key for key in self._errors if key is not None]
        groups = ErrorGroup.objects.using(settings.DATABASE).in_bulk(keys)
        titles: dict[int | None, str] = defaultdict(lambda: "without an error")
        for key in keys:
            title = groups[key].title if key in groups else "a new error"
            titles[key] = f"{title} (group {ErrorGroup(pk=key).name})"
        most = self._errors.most_common(5)
        return "; ".join(f"{number(count)} × {titles[key]}" for key, count in most)


# The Types ``atp.redrive``, ``atp.cancel`` and ``atp.delete``.

# It restarts however often its daemon is killed, and waits while the database cannot be reached.
_MANY = 1_000
_PARAMETERS: dict[str, Any] = {
    "timeout": None,
    "max_restarts": _MANY,
    "max_retries": 20,
    "backoff": 5,
    "priority": 50,
}


@task_type("atp.redrive", **_PARAMETERS)
def redrive(
    context: Any,
    *,
    selection: dict[str, Any],
    count: int,
    rate: str | None = None,
    canary: int = 0,
    threshold: float = 0.95,
    by: str = "",
) -> dict[str, Any]:
    """Redrive all Instances in a selection, the canary first, at a rate."""
    chosen = Selection(**selection)
    return BulkRedrive(context, chosen, count, rate, by, canary, threshold).run()


@task_type("atp.cancel", **_PARAMETERS)
def cancel(
    context: Any, *, selection: dict[str, Any], count: int, rate: str | None = None, by: str = ""
) -> dict[str, Any]:
    """Cancel all Instances in a selection, at a rate."""
    return BulkOperation(context, Selection(**selection), count, rate, by).run()


@task_type("atp.delete", **_PARAMETERS)
def delete(
    context: Any, *, selection: dict[str, Any], count: int, rate: str | None = None, by: str = ""
) -> dict[str, Any]:
    """Delete all Instances in a selection, at a rate."""
    return BulkOperation(context, Selection(**selection), count, rate, by).run()

"""The Types `atp.redrive`, `atp.cancel`, `atp.delete`: in portions, at a rate, a canary first."""

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
from ..store.values.moves import Move

# Apply a verb to all Instances of a selection: in portions, at a rate, from anew after a kill.

PORTION = 100
# In seconds: the shortest wait for the rate, and the longest for which it keeps its worker.
SHORTEST, LONGEST = 0.1, 5.0
_MAX_WHO = 200


class CarryingOut:
    """One attempt to apply a verb to a selection.

    It needs no cursor that outlives it: an Instance that is done is no longer in the selection. One
    that the verb cannot be applied to is passed over; the next attempt tries it again.
    """

    def __init__(
        self, context: Any, selection: Selection, count: int, rate: str | None, by: str
    ) -> None:
        self.context = context
        self.selection = selection
        self.count = count
        self.who = _who(by, selection.verb, context.uuid)
        self._per_second = None if rate is None else gates.per_second(rate)
        self._judge = Judge(selection.verb)
        self._after = 0
        # What the verb cannot be applied to stays in the selection; ``count`` leaves it out.
        now = selection.rows().count()
        self._done = max(0, context.step("matched", lambda: now) - now)
        self._left: Counter[str] = Counter()
        self._since, self._sent = time.monotonic(), 0

    def run(self) -> dict[str, Any]:
        """Apply the verb to all Instances of the selection; return the Response."""
        while True:
            self.look()
            portion = self._next(self._wait())
            if not portion:
                break
            self.do(portion)
        self.context.progress(1.0)
        return {"done": self._done, "left": {why: n for why, n in self._left.items() if n}}

    def look(self) -> None:
        """Check whether the attempt must end or pause. A pause does not count for the rate."""
        before = time.monotonic()
        self.context.check()
        self._since += time.monotonic() - before

    def _next(self, size: int) -> list[Instance]:
        rows = self.selection.rows().filter(pk__gt=self._after).order_by("pk")
        portion = list(rows[:size])
        if portion:
            self._after = portion[-1].pk
        return portion

    def _wait(self) -> int:
        """Wait until the rate allows more; return how many. Raises Defer for a long wait."""
        if self._per_second is None:
            return PORTION
        while True:
            allowed = int(self._per_second * (time.monotonic() - self._since)) + 1 - self._sent
            if allowed >= 1:
                return min(allowed, PORTION)
            pause = (self._sent / self._per_second) - (time.monotonic() - self._since)
            if pause > LONGEST:
                raise Defer("the rate allows the next one later", after=pause)
            self.idle(max(SHORTEST, min(pause, 1.0)))

    def idle(self, seconds: float) -> None:
        """Wait for some seconds, then check whether the attempt must end or pause."""
        time.sleep(seconds)
        self.look()

    def do(self, portion: Sequence[Instance]) -> list[int]:
        """Apply the verb to a portion, in a transaction of its own; return the keys of those done.

        The log of each Instance names the Instance of this attempt.
        """
        cannot = self._judge.cannot(portion)
        self._left.update(cannot.values())
        keys = [instance.pk for instance in portion if instance.pk not in cannot]
        done = _DO[self.selection.verb](keys, self.who) if keys else []
        self._left[_REFUSED[self.selection.verb]] += len(keys) - len(done)
        self._sent += len(done)
        self._done += len(done)
        told = f"{self._done} of {self.count}"
        self.context.progress(self._done, max(self.count, 1), told)
        return done


def _who(by: str, verb: str, uuid: object) -> str:
    told = f" ({verb} {uuid})"
    return f"{by[: _MAX_WHO - len(told)]}{told}".strip()


def _redrive(keys: list[int], who: str) -> list[int]:
    moves = [Move(event=Event.REDRIVE, instance=key, who=who) for key in keys]
    refused = {move.instance for move in get_store().record(moves)}
    return [key for key in keys if key not in refused]


def _cancel(keys: list[int], who: str) -> list[int]:
    found = get_store().cancel(keys, who=who)
    return sorted({*found.failed, *found.asked})


def _delete(keys: list[int], who: str) -> list[int]:
    get_store().purge(instances=keys, limit=len(keys), who=who)
    left = set(Instance.objects.using(get_store().alias).in_bulk(keys))
    return [key for key in keys if key not in left]


# Why the store does not do what the plan thought possible.
_REFUSED = {
    REDRIVE: "it has changed, or a node before it is FAILED",
    CANCEL: "it has ended",
    DELETE: "it is locked by somebody, or its files cannot be removed",
}
_DO = {REDRIVE: _redrive, CANCEL: _cancel, DELETE: _delete}


# Redrive a selection: a canary first, then the others, while watching how the redriven end.

# The number of last ends that are watched, and the number below which they are not judged.
WATCHED, FEWEST = 100, 20
# The number of redriven Instances whose ends are waited for at a time.
MOST_WATCHED = 2000
# The number of dead letters, or more, from which the canary is chosen at a time.
CHOSEN_FROM = 2000
# In seconds: between two looks, and until it gives up its worker to what it has redriven.
LOOK_EVERY, PATIENCE = 1.0, 3.0
SHORTEST_WAIT, LONGEST_WAIT = 1.0, 15.0


class Redriving(CarryingOut):
    """An attempt to redrive a selection, which goes on after its canary if enough of it FINISHED.

    If too few of the canary, or later of the last ends, FINISHED, it stops: it fails and names the
    errors. The dead letters that it has not redriven stay as they are; another can redrive them.
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
        # The keys of those redriven last, in order, with the time of each.
        self._last: dict[int, float] = {}
        self._looked = time.monotonic()

    def run(self) -> dict[str, Any]:
        if self._canary:
            keys = self.context.step("canary", self._chosen)
            self._wait_for(self._redriven(keys))
        return super().run()

    def _chosen(self) -> list[int]:
        """Return the keys of the canary, chosen from all pairs of Type and collection in turn."""
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
        """Redrive what is left of the canary; return the keys of all of it that were redriven.

        Raises Fatal if none could be.
        """
        rows = self.selection.rows().filter(pk__in=keys).order_by("pk")
        done = self.do(list(rows))
        if done:
            self.context.log(f"canary: {len(done)} redriven")
        # What was redriven before is not in the selection any more.
        refused = set(rows.values_list("pk", flat=True))
        redriven = [key for key in keys if key not in refused]
        if keys and not redriven:
            raise Fatal(
                f"stopped: none of {len(keys)} canaries could be redriven.", fingerprint="stopped"
            )
        return redriven

    def _wait_for(self, keys: Sequence[int]) -> None:
        """Wait until the canary has ended. Raises Defer if that takes long, to free the worker."""
        began = time.monotonic()
        while True:
            ends = _Ends(keys)
            if not ends.live:
                break
            told = f"canary: {len(keys) - len(ends.live)} of {len(keys)} have ended"
            self.context.progress(self._done, max(self.count, 1), told)
            if time.monotonic() - began > PATIENCE:
                wait = min(LONGEST_WAIT, SHORTEST_WAIT + self.context.attempt / 4)
                raise Defer(told, after=wait)
            self.idle(0.2)
        self._judge_ends(ends, "canaries")
        self.context.log(f"canary: {ends.finished} of {len(keys)} FINISHED")

    def _judge_ends(self, ends: _Ends, what: str) -> None:
        """Raise Fatal if too few of these ended Instances FINISHED."""
        ended = ends.finished + len(ends.failed)
        if ended and ends.finished < self._threshold * ended:
            left = self.selection.rows().count()
            raise Fatal(
                f"stopped: {len(ends.failed)} of {ended} {what} FAILED, at most "
                f"{1 - self._threshold:.0%} may: {ends.told()}. Left as they are: {left}.",
                fingerprint="stopped",
            )

    def do(self, portion: Sequence[Instance]) -> list[int]:
        done = super().do(portion)
        now = time.monotonic()
        # More of them would be a sample as good as these, and take longer to look at.
        room = MOST_WATCHED - len(self._last)
        self._last |= dict.fromkeys(done[: max(0, room)], now)
        self._watch(now)
        return done

    def idle(self, seconds: float) -> None:
        super().idle(seconds)
        self._watch(time.monotonic())

    def _watch(self, now: float) -> None:
        """Raise Fatal if too few of the last ends FINISHED, Defer if no redriven one starts."""
        if now - self._looked < LOOK_EVERY or not self._last:
            return
        self._looked = now
        ends = _Ends(list(self._last), last=WATCHED)
        if self._canary and ends.finished + len(ends.failed) >= FEWEST:
            self._judge_ends(ends, f"of the last {WATCHED}")
        for key in ends.ended[:-WATCHED]:
            del self._last[key]
        oldest = next(iter(self._last.values()), now)
        if ends.is_stuck and now - oldest > PATIENCE:
            raise Defer("none of what was redriven has started", after=SHORTEST_WAIT)


class _Ends:
    """The ends of redriven Instances; with ``last``, only that many of the latest ends count."""

    def __init__(self, keys: Sequence[int], last: int | None = None) -> None:
        rows = Instance.objects.using(settings.DATABASE).filter(pk__in=keys)
        found = {row[0]: row[1:] for row in rows.values_list("pk", "state", "finished", "error_id")}
        times = {key: finished for key, (_, finished, _) in found.items() if finished is not None}
        self.live = [key for key in found if key not in times]
        # An Instance that is gone has FINISHED: its Type does not keep such Instances.
        gone = [key for key in keys if key not in found]
        self.ended = gone + sorted(times, key=times.__getitem__)
        counted = self.ended if last is None else self.ended[-last:]
        self.failed = [key for key in counted if key in found and found[key][0] == State.FAILED]
        self.finished = len(counted) - len(self.failed)
        waiting = [key for key in self.live if found[key][0] == State.ACCEPTED]
        self.is_stuck = bool(waiting) and len(waiting) == len(keys)
        self._errors = Counter(found[key][2] for key in self.failed)

    def told(self) -> str:
        """Return the errors in words, the most frequent first."""
        keys = [key for key in self._errors if key is not None]
        groups = ErrorGroup.objects.using(settings.DATABASE).in_bulk(keys)
        told: dict[int | None, str] = defaultdict(lambda: "without an error")
        for key in keys:
            title = groups[key].title if key in groups else "a new error"
            told[key] = f"{title} (group {ErrorGroup(pk=key).name})"
        most = self._errors.most_common(5)
        return "; ".join(f"{count} × {told[key]}" for key, count in most)


# The Types ``atp.redrive``, ``atp.cancel`` and ``atp.delete``.

# It goes on however often its daemon is killed, and waits for a database that is away.
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
    """Redrive all Instances of a selection, the canary first, at a rate."""
    chosen = Selection(**selection)
    return Redriving(context, chosen, count, rate, by, canary, threshold).run()


@task_type("atp.cancel", **_PARAMETERS)
def cancel(
    context: Any, *, selection: dict[str, Any], count: int, rate: str | None = None, by: str = ""
) -> dict[str, Any]:
    """Cancel all Instances of a selection, at a rate."""
    return CarryingOut(context, Selection(**selection), count, rate, by).run()


@task_type("atp.delete", **_PARAMETERS)
def delete(
    context: Any, *, selection: dict[str, Any], count: int, rate: str | None = None, by: str = ""
) -> dict[str, Any]:
    """Remove all Instances of a selection, at a rate."""
    return CarryingOut(context, Selection(**selection), count, rate, by).run()

"""Apply a verb to all Instances of a selection: in portions, at a rate, from anew after a kill."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..exceptions import Defer
from ..models import Instance
from ..states import Event
from ..store import get_store
from ..store.values import Move
from ..verbs.matching.plan import Judge
from ..verbs.matching.selection import CANCEL, DELETE, REDRIVE, Selection
from ..words import rates

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
        self._per_second = None if rate is None else rates.per_second(rate)
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

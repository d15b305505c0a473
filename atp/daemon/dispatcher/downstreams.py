"""What downstreams have answered, until it is reported to the queue."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Protocol

from ...downstreams import protection
from ...downstreams.protection import LENGTH, Report, State, Verdict
from ...operations.registry import registry
from ...store.values import Attempt
from ..outcomes import DOWNSTREAMS, Kind, Outcome
from ..processes import uptime
from .pool import Pool

# The downstreams that this daemon's attempts call: their answers, until they are reported.
#
# While a downstream is healthy, its answers are not reported. A refusal or a failure is reported
# at once. Until the report is acknowledged, no worker gets a Task that calls this downstream, so
# that only calls that were already on their way can fail.

# After so many claims in a row without a guard, the row of a Type does not name its downstream.
UNNAMED = 3
_VERDICTS = {
    Kind.FINISHED: Verdict.OK,
    Kind.CONCLUDED: Verdict.OK,
    Kind.THROTTLED: Verdict.REFUSED,
    Kind.UNAVAILABLE: Verdict.FAILED,
}


class Row(Protocol):
    """The part of a downstream's row that this module reads."""

    @property
    def state(self) -> str: ...


class Downstreams:
    """The downstreams of this daemon's Types; ``names`` has the downstream's name by Type."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {
            name: type.downstream for type in registry if type.downstream for name in type.names
        }
        self._known = {name: Downstream() for name in self.names.values()}
        # How often, in a row, Tasks of a Type were claimed as if it had no downstream.
        self._unguarded: Counter[str] = Counter()

    def ended(self, attempt: Attempt, outcome: Outcome | Any) -> Outcome | None:
        """Note the end of an attempt, and return its Outcome.

        If the downstream has refused or failed, the Outcome has the delay until it is due again.
        """
        known = self._known.get(self.names.get(attempt.type))  # type: ignore[arg-type]
        if known is None:
            return outcome
        kind = Kind.FINISHED if outcome is None else outcome.kind
        verdict = _VERDICTS.get(kind, Verdict.UNKNOWN)
        after = outcome.after if kind in DOWNSTREAMS else None
        if verdict is not Verdict.UNKNOWN:
            known.answers.add(verdict, after)
        if attempt.guard == "probe":
            known.answers.probe = attempt.instance, verdict
        if kind not in DOWNSTREAMS:
            return outcome
        opens_in = max(0.0, known.opens_at - uptime())
        return replace(outcome, after=protection.delay_until_call(after, opens_in, random.random()))  # noqa: S311

    def held_back(self, pool: Pool) -> list[Attempt]:
        """Remove from the pool and return the waiting Tasks whose downstream is paused."""
        paused = {name for name, known in self._known.items() if known.is_paused}
        if not paused:
            return []
        names = self.names
        return _taken(pool, lambda each: names.get(each.type) in paused)

    # Reporting

    def due(self) -> list[str]:
        """Return the names of the downstreams whose answers have to be reported now."""
        return [name for name, known in self._known.items() if known.is_due]

    def take(self, name: str) -> Report:
        """Return the Report of a downstream; later answers go into the next one."""
        known = self._known[name]
        known.sent, known.answers = known.answers, Answers()
        known.told_at = uptime()
        return known.sent.report()

    def told(self, name: str, row: Row | None, opens_in: float = 0.0) -> None:
        """Note the result of a report: the downstream's row, or None if nothing was written."""
        known = self._known[name]
        sent: Any
        sent, known.sent = known.sent, None
        if row is None:
            known.unwritten_since = known.unwritten_since or uptime()
            known.answers = sent.merged(known.answers)
            return
        known.state, known.is_doubtful = State(row.state), False
        known.unwritten_since = None
        if known.state is State.CLOSED:
            self.named([type for type, own in self.names.items() if own == name])
        known.opens_at = uptime() + opens_in

    def let_go(self, pool: Pool, name: str) -> list[Attempt]:
        """Remove from the pool and return the waiting Tasks that the downstream's state forbids.

        They were claimed before the downstream came into this state.
        """
        state = self._known[name].state
        if state is State.CLOSED:
            return []
        fits = ("rate", "probe") if state is State.THROTTLED else ("probe",)
        return _taken(
            pool,
            lambda each: self.names.get(each.type) == name and each.guard not in fits,
        )

    def too_early(self, pool: Pool) -> Iterator[tuple[str, list[Attempt]]]:
        """Remove the waiting Tasks that a downstream's state forbids; yield its name and them.

        Either they were claimed before the last answer, or the state has changed since. So the
        downstream is asked for its state again.
        """
        for name, known in self._known.items():
            if known.state is State.CLOSED:
                continue
            own = [each for each in pool.waiting() if self.names.get(each.type) == name]
            self.named({each.type for each in own if each.guard})
            gone = self.let_go(pool, name)
            if gone:
                known.is_doubtful = True
                self._unguarded.update({each.type for each in gone if not each.guard})
                yield name, gone

    def unnamed(self) -> list[str]:
        """Return the Types whose rows do not name the downstream that their code names.

        An older release may have registered them last. Nothing of them gets a probe.
        """
        return [type for type, times in self._unguarded.items() if times >= UNNAMED]

    def named(self, types: Iterable[str]) -> None:
        """Note that the rows of these Types have been written again."""
        for type in types:
            self._unguarded.pop(type, None)

    def stuck(self) -> set[str]:
        """Return the names of downstreams that have refused, which cannot be reported."""
        return {name for name, known in self._known.items() if known.is_stuck}

    def claimable(self, types: tuple[str, ...]) -> tuple[str, ...]:
        """Return the given Types without those of which nothing can start now.

        Those are unnamed, or their downstream has refused and this cannot be reported: somebody
        has locked its row.
        """
        stuck = self.stuck()
        unnamed = self.unnamed()
        if not stuck and not unnamed:
            return types
        return tuple(t for t in types if t not in unnamed and self.names.get(t) not in stuck)

    def pause(self, longest: float) -> float:
        """Return the time until the next urgent report, in seconds, ``longest`` at most.

        A report that is overdue waits for the thread that records, or for the next join.
        """
        for known in self._known.values():
            if known.is_pressing:
                left = known.told_at + SOONEST - uptime()
                longest = min(longest, left if left > 0 else longest)
        return longest


def _taken(pool: Pool, is_one: Callable[[Attempt], bool]) -> list[Attempt]:
    """Remove from the pool and return the waiting Tasks for which ``is_one(attempt)`` is true."""
    found = [attempt for attempt in pool.waiting() if is_one(attempt)]
    pool.remove_waiting(found)
    return found


# The answers of one downstream, and what this daemon knows of it.

# While the breaker of a downstream is not closed, its answers are reported every EVERY seconds.
# An urgent report comes SOONEST seconds after the last one, or later.
EVERY, SOONEST = 0.5, 0.05
_PLACES = {Verdict.OK: 0, Verdict.REFUSED: 1, Verdict.FAILED: 2}


class Answers:
    """The answers of a downstream that are not reported yet.

    ``seconds`` has, by second of the uptime clock, the numbers of calls that were ok, refused
    and failed. ``row`` is the number of failures in a row at the end. ``had_ok`` says that
    there was another answer, ok or refused. ``is_urgent`` says that some answer was a refusal
    or a failure, and ``is_bad`` that the last one was.
    """

    def __init__(self) -> None:
        self.seconds: dict[int, list[int]] = {}
        self.row, self.had_ok = 0, False
        self.after: float | None = None
        self.probe: tuple[int, Verdict] | None = None
        self.is_urgent = self.is_bad = False

    def add(self, verdict: Verdict, after: float | None) -> None:
        second = int(uptime())
        counts = self.seconds.get(second)
        if counts is None:
            self._forget(second - LENGTH)
            counts = self.seconds[second] = [0, 0, 0]
        counts[_PLACES[verdict]] += 1
        self.row = self.row + 1 if verdict is Verdict.FAILED else 0
        if verdict is Verdict.OK:
            self.had_ok, self.is_bad = True, False
        else:
            self.had_ok |= verdict is Verdict.REFUSED
            self.is_urgent = self.is_bad = True
            if after is not None:
                self.after = max(after, self.after or 0.0)

    def _forget(self, before: float) -> None:
        self.seconds = {at: counts for at, counts in self.seconds.items() if at > before}

    def report(self) -> Report:
        now = uptime()
        self._forget(now - LENGTH)
        counts: Any = tuple((now - at, *numbers) for at, numbers in sorted(self.seconds.items()))
        return Report(
            counts=counts, row=self.row, had_ok=self.had_ok, after=self.after, probe=self.probe
        )

    def merged(self, later: "Answers") -> "Answers":
        """Return these answers and the ``later`` ones as one, after these were not reported."""
        found = Answers()
        found.seconds = dict(self.seconds)
        for at, counts in later.seconds.items():
            pairs = zip(found.seconds.get(at, (0, 0, 0)), counts, strict=True)
            found.seconds[at] = [a + b for a, b in pairs]
        found.row = later.row if later.had_ok else self.row + later.row
        found.had_ok = self.had_ok or later.had_ok
        found.after = max(self.after or 0.0, later.after or 0.0) or None
        found.probe = later.probe or self.probe
        found.is_urgent = self.is_urgent or later.is_urgent
        found.is_bad = later.is_bad or (self.is_bad and not later.had_ok)
        return found


class Downstream:
    """This daemon's knowledge of one downstream; ``state`` is from the last report's answer."""

    def __init__(self) -> None:
        self.answers = Answers()
        self.sent: Answers | None = None
        self.state = State.CLOSED
        self.opens_at = self.told_at = 0.0
        # Whether a claim has found the downstream in another state than the last answer said.
        self.is_doubtful = False
        # Since when no report was written, for example as somebody has locked the row, or None.
        self.unwritten_since: float | None = None

    @property
    def is_unwritten(self) -> bool:
        """Whether the last report was not written."""
        return self.unwritten_since is not None

    @property
    def is_stuck(self) -> bool:
        """Whether its Tasks wait for a report that was not written for a while.

        Claims lock the row too, but only for a moment.
        """
        if not self.is_paused or self.unwritten_since is None:
            return False
        return uptime() - self.unwritten_since >= EVERY

    @property
    def is_due(self) -> bool:
        """Whether its answers have to be reported now."""
        passed = uptime() - self.told_at
        if self.answers.probe and not self.is_unwritten:
            return True
        if self.is_pressing:
            return passed >= SOONEST
        return self.state is not State.CLOSED and bool(self.answers.seconds) and passed >= EVERY

    @property
    def is_pressing(self) -> bool:
        """Whether its answers have to be reported SOONEST seconds after the last report."""
        return bool(self.answers.probe) or self.answers.is_urgent or self.is_doubtful

    @property
    def is_paused(self) -> bool:
        """Whether its Tasks wait, because a refusal or a failure is not yet acknowledged."""
        return self.answers.is_bad or (self.sent is not None and self.sent.is_bad)

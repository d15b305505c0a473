"""The downstreams that this daemon's attempts call: their answers, until they are reported.

While a downstream is healthy, its answers are not reported. A refusal or a failure is reported
at once. Until the report is acknowledged, no worker gets a Task that calls this downstream, so
that only calls that were already on their way can fail.
"""

import random
from collections import Counter
from dataclasses import replace

from ....downstreams import protection
from ....downstreams.protection import State, Verdict
from ....operations.registry import registry
from ...shared.outcome import DOWNSTREAMS, Kind
from ...system.processes import uptime
from .answers import SOONEST, Answers, Downstream

# After so many claims in a row without a guard, the row of a Type does not name its downstream.
UNNAMED = 3
_VERDICTS = {
    Kind.FINISHED: Verdict.OK,
    Kind.CONCLUDED: Verdict.OK,
    Kind.THROTTLED: Verdict.REFUSED,
    Kind.UNAVAILABLE: Verdict.FAILED,
}


class Downstreams:
    """The downstreams of this daemon's Types; ``names`` has the downstream's name by Type."""

    def __init__(self):
        self.names = {
            name: type.downstream for type in registry if type.downstream for name in type.names
        }
        self._known = {name: Downstream() for name in self.names.values()}
        # How often, in a row, Tasks of a Type were claimed as if it had no downstream.
        self._unguarded = Counter()

    def ended(self, claimed, outcome):
        """Note the end of an attempt, and return its Outcome.

        If the downstream has refused or failed, the Outcome has the delay until it is due again.
        """
        known = self._known.get(self.names.get(claimed.type))
        if known is None:
            return outcome
        kind = Kind.FINISHED if outcome is None else outcome.kind
        verdict = _VERDICTS.get(kind, Verdict.UNKNOWN)
        after = outcome.after if kind in DOWNSTREAMS else None
        if verdict is not Verdict.UNKNOWN:
            known.answers.add(verdict, after)
        if claimed.guard == "probe":
            known.answers.probe = claimed.instance, verdict
        if kind not in DOWNSTREAMS:
            return outcome
        opens_in = max(0.0, known.opens_at - uptime())
        return replace(outcome, after=protection.delay_until_call(after, opens_in, random.random()))  # noqa: S311

    def held_back(self, pool):
        """Remove from the pool and return the waiting Tasks whose downstream is paused."""
        paused = {name for name, known in self._known.items() if known.is_paused}
        if not paused:
            return []
        names = self.names
        return _taken(pool, lambda each: names.get(each.type) in paused)

    # Reporting

    def due(self):
        """Return the names of the downstreams whose answers have to be reported now."""
        return [name for name, known in self._known.items() if known.is_due]

    def take(self, name):
        """Return the Report of a downstream; later answers go into the next one."""
        known = self._known[name]
        known.sent, known.answers = known.answers, Answers()
        known.told_at = uptime()
        return known.sent.report()

    def told(self, name, row, opens_in=0.0):
        """Note the result of a report: the downstream's row, or None if nothing was written."""
        known = self._known[name]
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

    def let_go(self, pool, name):
        """Remove from the pool and return the waiting Tasks that the downstream's state forbids.

        They were claimed before the downstream came into this state.
        """
        state = self._known[name].state
        if state is State.CLOSED:
            return []
        fits = ("rate", "probe") if state is State.THROTTLED else ("probe",)
        return _taken(
            pool,
            lambda each: self.names.get(each.type) == name and each.claimed.guard not in fits,
        )

    def too_early(self, pool):
        """Remove the waiting Tasks that a downstream's state forbids; yield its name and them.

        Either they were claimed before the last answer, or the state has changed since. So the
        downstream is asked for its state again.
        """
        for name, known in self._known.items():
            if known.state is State.CLOSED:
                continue
            own = [each for each in pool.waiting if self.names.get(each.type) == name]
            self.named({each.type for each in own if each.claimed.guard})
            gone = self.let_go(pool, name)
            if gone:
                known.is_doubtful = True
                self._unguarded.update({each.type for each in gone if not each.claimed.guard})
                yield name, gone

    def unnamed(self):
        """Return the Types whose rows do not name the downstream that their code names.

        An older release may have registered them last. Nothing of them gets a probe.
        """
        return [type for type, times in self._unguarded.items() if times >= UNNAMED]

    def named(self, types):
        """Note that the rows of these Types have been written again."""
        for type in types:
            self._unguarded.pop(type, None)

    def stuck(self):
        """Return the names of downstreams that have refused, which cannot be reported."""
        return {name for name, known in self._known.items() if known.is_stuck}

    def claimable(self, types):
        """Return the given Types without those of which nothing can start now.

        Those are unnamed, or their downstream has refused and this cannot be reported: somebody
        has locked its row.
        """
        stuck = self.stuck()
        unnamed = self.unnamed()
        if not stuck and not unnamed:
            return types
        return tuple(t for t in types if t not in unnamed and self.names.get(t) not in stuck)

    def pause(self, longest):
        """Return the time until the next urgent report, in seconds, ``longest`` at most.

        A report that is overdue waits for the thread that records, or for the next join.
        """
        for known in self._known.values():
            if known.is_pressing:
                left = known.told_at + SOONEST - uptime()
                longest = min(longest, left if left > 0 else longest)
        return longest


def _taken(pool, is_one):
    """Remove from the pool and return the waiting Tasks for which ``is_one(holding)`` is true."""
    found = [holding for holding in pool.waiting if is_one(holding)]
    for holding in found:
        pool.waiting.remove(holding)
    return found

"""The answers of one downstream, and what this daemon knows of it."""

from ....downstreams.protection import LENGTH, Report, State, Verdict
from ...system.processes import uptime

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

    def __init__(self):
        self.seconds = {}
        self.row, self.had_ok = 0, False
        self.after = self.probe = None
        self.is_urgent = self.is_bad = False

    def add(self, verdict, after):
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

    def _forget(self, before):
        self.seconds = {at: counts for at, counts in self.seconds.items() if at > before}

    def report(self):
        now = uptime()
        self._forget(now - LENGTH)
        counts = tuple((now - at, *numbers) for at, numbers in sorted(self.seconds.items()))
        return Report(
            counts=counts, row=self.row, had_ok=self.had_ok, after=self.after, probe=self.probe
        )

    def merged(self, later):
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

    def __init__(self):
        self.answers = Answers()
        self.sent = None
        self.state = State.CLOSED
        self.opens_at = self.told_at = 0.0
        # Whether a claim has found the downstream in another state than the last answer said.
        self.is_doubtful = False
        # Since when no report was written, for example as somebody has locked the row, or None.
        self.unwritten_since = None

    @property
    def is_unwritten(self):
        """Whether the last report was not written."""
        return self.unwritten_since is not None

    @property
    def is_stuck(self):
        """Whether its Tasks wait for a report that was not written for a while.

        Claims lock the row too, but only for a moment.
        """
        if not self.is_paused or self.unwritten_since is None:
            return False
        return uptime() - self.unwritten_since >= EVERY

    @property
    def is_due(self):
        """Whether its answers have to be reported now."""
        passed = uptime() - self.told_at
        if self.answers.probe and not self.is_unwritten:
            return True
        if self.is_pressing:
            return passed >= SOONEST
        return self.state is not State.CLOSED and bool(self.answers.seconds) and passed >= EVERY

    @property
    def is_pressing(self):
        """Whether its answers have to be reported SOONEST seconds after the last report."""
        return bool(self.answers.probe) or self.answers.is_urgent or self.is_doubtful

    @property
    def is_paused(self):
        """Whether its Tasks wait, because a refusal or a failure is not yet acknowledged."""
        return self.answers.is_bad or (self.sent is not None and self.sent.is_bad)

"""The pace of tasks and claims lately, which decides how many a worker is given ahead."""

# A worker is given tasks as long as all that it has are expected to be done within
# this, in seconds: no task waits behind others for longer.
AHEAD = 0.05
# More is claimed, and handed out, when less is left of it than a claim may take. What
# is claimed at once is the more, and cheaper, the longer that is put off. At most, and
# beyond twice what claims took lately, in seconds.
LOW, MARGIN = 0.6 * AHEAD, 0.005
MAX_AHEAD = 512
# The expected time of a Type that was never seen to run: no task is put behind such a one.
UNKNOWN = 1e6
# Weight of what was measured last in the means.
_WEIGHT = 0.2
_SHORTEST = 1e-5


class Pace:
    """Moving means in seconds: run times, per Type and over all of them; and claims."""

    def __init__(self):
        self._by_type = {}
        self._overall = None
        self._claim = None

    @property
    def low(self):
        """The work below which a worker is given more, in seconds."""
        return LOW if self._claim is None else min(LOW, MARGIN + 2 * self._claim)

    def measure_claim(self, seconds):
        """A claim took so long, until it could be handed out; a long one counts for itself."""
        self._claim = max(seconds, _mean(self._claim, seconds))

    def measure(self, type, seconds):
        """Tasks of this Type have taken so long, each."""
        before = self._by_type.get(type)
        if before is None:
            self._by_type[type] = seconds
            self._overall = _mean(self._overall, seconds)
        else:  # the usual case, without a call: this is done for every task
            self._by_type[type] = before + _WEIGHT * (seconds - before)
            self._overall += _WEIGHT * (seconds - self._overall)

    def slow_down(self):
        """The waiting Tasks take longer than those that ran lately: claim for free workers only."""
        self._overall = AHEAD

    def expected(self, type):
        """Return for how many seconds a task of this Type is expected to run."""
        expected = self._by_type.get(type, UNKNOWN)
        return expected if expected > _SHORTEST else _SHORTEST

    def room(self, load):
        """Return how many tasks of any Type a worker may get that has ``load`` seconds of work.

        A free worker gets one at least, and so does one that soon will be free.
        """
        if load > AHEAD:
            return 0
        if self._overall is None:
            return 0 if load else 1
        return max(1, min(MAX_AHEAD, int((AHEAD - load) / max(self._overall, _SHORTEST))))


def _mean(before, seconds):
    return seconds if before is None else (1 - _WEIGHT) * before + _WEIGHT * seconds

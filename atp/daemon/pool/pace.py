"""The recent durations of tasks and claims, which decide how many tasks a worker gets ahead."""

# A worker gets tasks as long as all its tasks are expected to be done within this many
# seconds: no task waits behind others for longer.
AHEAD = 0.05
# In seconds: a worker gets more when its work is less than MARGIN plus twice the time of recent
# claims, LOW at most. The later this happens, the more Tasks one claim takes, and the less it
# costs for each.
LOW, MARGIN = 0.6 * AHEAD, 0.005
MAX_AHEAD = 512
# The expected time of a Type that has never run here: no task waits behind one of this Type.
UNKNOWN = 1e6
# The weight of the last measurement in the means.
_WEIGHT = 0.2
_SHORTEST = 1e-5


class Pace:
    """Moving means, in seconds, of the run times (by Type, and over all Types) and of claims."""

    def __init__(self):
        self._by_type = {}
        self._overall = None
        self._claim = None

    @property
    def low(self):
        """The seconds of work below which a worker gets more tasks."""
        return LOW if self._claim is None else min(LOW, MARGIN + 2 * self._claim)

    def measure_claim(self, seconds):
        """Note the duration of a claim, up to handing out; a long one replaces the mean."""
        self._claim = max(seconds, _mean(self._claim, seconds))

    def measure(self, type, seconds):
        """Note the duration of a task of this Type."""
        before = self._by_type.get(type)
        if before is None:
            self._by_type[type] = seconds
            self._overall = _mean(self._overall, seconds)
        else:  # the usual case, without a call: this is done for every task
            self._by_type[type] = before + _WEIGHT * (seconds - before)
            self._overall += _WEIGHT * (seconds - self._overall)

    def slow_down(self):
        """Claim for free workers only, since waiting Tasks take longer than recent ones did."""
        self._overall = AHEAD

    def expected(self, type):
        """Return the expected duration of a task of this Type, in seconds."""
        expected = self._by_type.get(type, UNKNOWN)
        return expected if expected > _SHORTEST else _SHORTEST

    def room(self, load):
        """Return the number of tasks that a worker with ``load`` seconds of work may get.

        It is at least one for a worker that is free or will soon be free.
        """
        if load > AHEAD:
            return 0
        if self._overall is None:
            return 0 if load else 1
        return max(1, min(MAX_AHEAD, int((AHEAD - load) / max(self._overall, _SHORTEST))))


def _mean(before, seconds):
    return seconds if before is None else (1 - _WEIGHT) * before + _WEIGHT * seconds

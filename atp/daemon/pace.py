"""How long tasks take lately, and so how many a worker may be given ahead."""

# A worker is given short tasks up to this much expected work ahead, in seconds:
# what waits behind another task waits no longer than this.
AHEAD = 0.05
MAX_AHEAD = 64
# Weight of the latest run in the means.
_WEIGHT = 0.2
_SHORTEST = 1e-4


class Pace:
    """Moving means of run times, in seconds: per Type, and over all of them."""

    def __init__(self):
        self._by_type = {}
        self._overall = None

    def measure(self, type, seconds):
        """A task of this Type has taken so long."""
        self._by_type[type] = _mean(self._by_type.get(type), seconds)
        self._overall = _mean(self._overall, seconds)

    def slow_down(self):
        """What waits takes longer than what ran lately: claim for free workers only."""
        self._overall = AHEAD

    def tasks_ahead(self):
        """How many tasks of whatever Type a worker may have in hand; at least one."""
        if self._overall is None:
            return 1
        return max(1, min(MAX_AHEAD, int(AHEAD / max(self._overall, _SHORTEST))))

    def is_short(self, types):
        """Whether tasks of these Types, one after the other, are soon done."""
        expected = [self._by_type.get(type) for type in types]
        return len(types) <= MAX_AHEAD and None not in expected and sum(expected) <= AHEAD


def _mean(before, seconds):
    return seconds if before is None else (1 - _WEIGHT) * before + _WEIGHT * seconds

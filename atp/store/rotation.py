"""Turns: between Types by their weights, between the lanes of a Type one after the other.

Each daemon remembers it between its own claims: all claims together are shared fairly if
each daemon's are.
"""

from collections import Counter

# A look at more lanes, and priorities of them, is broken off: it goes on there next time.
STEPS = 50_000
# A claim is from so many lanes of a Type, where there are other Types, if it is for as many.
LANES = 100
# Tasks of several lanes are handed on in this many turns or more.
PIECES = 64


class Rotation:
    """The order of Types, and the lane behind which the next claim begins.

    Each Type has a time of its own, which goes on by what was taken of it, divided by
    its weight; the one that is furthest behind comes first. A Type that had nothing to do
    for a while does not get that time back (start-time fair queueing).
    """

    def __init__(self):
        self._times = {}
        self._now = 0.0
        self._after = {}
        # The Types of which the last claim was limited.
        self._last_apart = set()
        # The lanes that the last claim took something from; the Types, where nothing is limited.
        self._last = set()
        self._rivals = set()
        self._weights = {}

    def order(self, types):
        """Return the identifiers, the one that is furthest behind first."""
        return sorted(types, key=self._time)

    def behind(self, types):
        """Return those of ``types``, which are limited, that are no further than any rival.

        Where lanes of the same Type are not limited, they and the others take turns.
        """
        first = min([self._times[type] for type in self._rivals], default=-1.0)
        first_of = [type for type in self.order(types) if self._time(type) <= first]
        return [type for type in first_of if type not in self._rivals & self._last_apart]

    def parts(self, types, limit):
        """Return how many each of ``types`` may give by its weight, beside rivals, of a claim."""
        weights = {type: self._weights.get(type, 1.0) for type in {*types, *self._rivals}}
        total = sum(weights.values())
        return {type: _ceil(limit * weights[type] / total) for type in types}

    def _time(self, type):
        return self._times.get(type, 0.0)

    def after(self, type, *, apart=False):
        """Return the collection behind which to begin; limited lanes have one of their own."""
        return self._after.get((type, apart), "")

    def skip(self, places, *, apart=False):
        """Go on there next: pairs of Type and collection where a look was broken off."""
        self._after |= {(type, apart): collection for type, collection in places}

    def turned(self, lanes):
        """Return limited lanes of a Type, sorted, from the one behind the last on."""
        return sorted(lanes, key=lambda lane: (lane[1] <= self.after(lane[0], apart=True), lane))

    def took(self, counts, weights, *, apart=False):
        """Remember a claim: how many by lane, in the order of looking, and Types' weights.

        ``apart`` says that it was a claim of what is limited.
        """
        by_type = {}
        self._weights |= weights
        for (type, collection), count in counts.items():
            by_type[type] = by_type.get(type, 0) + count
            self._after[type, apart] = collection
        if not apart:
            self._rivals = set(by_type)
        if by_type:
            self._now = max(self._now, min(self._time(type) for type in by_type))
        for type, count in by_type.items():
            (self._last_apart.add if apart else self._last_apart.discard)(type)
            began = max(self._time(type), self._now)
            self._times[type] = began + count / weights.get(type, 1.0)

    def dealt(self, lanes):
        """Return the Tasks of ``lanes`` (a dict) in turn: the first of each, then the second, …

        Where there are many, some at a time: what a worker gets together is told in fewer
        words if it is of one Type. Who was not in the last claim comes first.
        """
        if len(lanes) == 1:
            self._last = set(lanes)
            [tasks] = lanes.values()
            return tasks
        order = sorted(lanes, key=self._last.__contains__)
        self._last = set(lanes)
        rounds, hands = [], [lanes[lane] for lane in order]
        piece = max(1, sum(map(len, hands)) // PIECES)
        for first in range(0, max(map(len, hands), default=0), piece):
            for hand in hands:
                rounds += hand[first : first + piece]
        return rounds


def most_steps(types):
    """Return how many steps from lane to lane a look takes in each of so many Types."""
    return max(1, STEPS // max(1, types))


def enough_lanes(limit, types):
    """Return how many of each Type a claim is from at most, of so many Types."""
    return max(-(-limit // max(1, types)), min(limit, LANES))


def shares(limit, weights, lanes):
    """Return how many each lane may give, where all have as many as it takes.

    ``weights`` are of Types, ``lanes`` pairs of Type and collection, both in the order
    in which they come: each Type gets its part of ``limit``, and of that each of its
    lanes an even one. What cannot be divided goes to those that come first.
    """
    of_type = {}
    for lane in lanes:
        of_type.setdefault(lane[0], []).append(lane)
    total, until, given = sum(weights[type] for type in of_type), 0.0, {}
    for type, own in of_type.items():
        before, until = until, until + weights[type]
        part = _ceil(limit * until / total) - _ceil(limit * before / total)
        for number, lane in enumerate(own):
            given[lane] = -(-part * (number + 1) // len(own)) + (-part * number // len(own))
    return given


def taken(limit, weights, lanes, caps, take):
    """Collect up to ``limit`` Tasks, as lists by lane; ``take(lane, wanted)`` gives those of one.

    Each lane gives its share first. What lanes of a Type have left of theirs, other lanes of
    that Type give; what is left then, any lane that has more. No lane gives more than its cap.
    """
    share = shares(limit, weights, lanes)
    found, lacking = {}, Counter()
    for lane in lanes:
        found[lane] = take(lane, min(share[lane], caps.get(lane, limit)))
        lacking[lane[0]] += share[lane] - len(found[lane])
    left = sum(lacking.values())
    more = [lane for lane in lanes if lane not in caps and len(found[lane]) == share[lane]]
    for of_type in (True, False):
        for lane in more if left else ():
            wanted = min(left, lacking[lane[0]]) if of_type else left
            if wanted > 0:
                tasks = take(lane, wanted)
                found[lane] += tasks
                lacking[lane[0]] -= len(tasks)
                left -= len(tasks)
    return found


def _ceil(value):
    return -int(-(value - 1e-6) // 1)

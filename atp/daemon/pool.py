"""The dispatcher's view of its workers: what each has in hand, and what it gets next."""

from collections import defaultdict, deque

from . import journal
from .channel import Closed
from .hand import Holding, packed
from .ledger import BATCH
from .pace import AHEAD, MAX_AHEAD, Pace
from .processes import uptime

# A claimed Task that no worker could start for this long is handed back, so
# that another daemon can have it.
PATIENCE = 1.0
# What lies unstarted in a hand for this long goes to a worker that is free, in seconds.
STEAL_AFTER = 0.01
# At most so many tasks at a time go to a worker, then the next worker has its turn.
PIECE = 16
# So many tasks of usual size fit into one packet.
PACKET = 128
# Within this time it is seen what a worker has started, in seconds.
LOOK_AFTER = 0.02


class Pool:
    """The workers, and the claimed Tasks that none of them has yet."""

    def __init__(self, transactional=()):
        self._transactional = frozenset(transactional)
        self.links = {}
        self.waiting = deque()
        self._pace = Pace()
        self._put = 0

    # What is where

    def __len__(self):
        """How many Tasks this daemon has in its hands."""
        return len(self.waiting) + sum(
            len(link.hand) + (link.reserved is not None) for link in self.links.values()
        )

    def holdings(self):
        """Every Task in this daemon's hands that has not ended."""
        yield from self.waiting
        for link in self.links.values():
            yield from link.hand.values()
            if link.reserved is not None:
                yield link.reserved

    def find(self, key):
        """Return ``(link, holding)`` of what a worker has or is reserved for it; Nones if none."""
        for link in self.links.values():
            if key in link.hand:
                return link, link.hand[key]
            if link.reserved is not None and link.reserved.key == key:
                return link, link.reserved
        return None, None

    def take_waiting(self, key):
        """Remove and return what no worker has; None if it is not here."""
        for holding in self.waiting:
            if holding.key == key:
                self.waiting.remove(holding)
                return holding
        return None

    def take_all_waiting(self):
        """Remove and return everything that no worker has."""
        waiting = list(self.waiting)
        self.waiting.clear()
        return waiting

    def drop(self, key):
        """Forget a Task. Returns ``(link, holding)``, the link if a worker may be running it."""
        waiting = self.take_waiting(key)
        if waiting is not None:
            return None, waiting
        link, holding = self.find(key)
        if holding is None:
            return None, None
        if holding is link.reserved:
            link.reserved = None
            return None, holding
        link.drop(key)
        return link, holding

    def add(self, link):
        self.links[link.slot] = link

    def remove(self, slot):
        """Forget a worker. Returns its link; the caller disposes of what it had in hand."""
        return self.links.pop(slot)

    # Claiming

    def _load(self, link, now):
        """How long a worker is expected to be busy with its hand, in seconds."""
        if link.reserved is not None or link.is_stuck or link.is_leaving:
            return float("inf")
        running = link.running
        if running is None:
            return link.expected
        passed = now - running.started
        if passed > running.expected + AHEAD or running.pause is not None:
            return float("inf")  # it has become long, or is on hold
        return max(link.expected - passed, 1e-6)

    def wanted(self, unrecorded=0):
        """How many more Tasks the workers could start soon.

        What has run and is ``unrecorded`` counts as if it were in hand, beyond what is
        recorded in one go: nothing is gained by running what cannot be recorded. A worker
        that has nothing gets something all the same.
        """
        now = uptime()
        room = sum(
            min(self._pace.room(self._load(link, now)), MAX_AHEAD - len(link.hand))
            for link in self.links.values()
        )
        behind = max(0, unrecorded - BATCH)
        return max(int(self.has_free()), room - len(self.waiting) - behind)

    def is_low(self):
        """Whether some worker has little left to do, and nothing is there for it."""
        return not self.waiting and any(self._low())

    def has_free(self):
        """Whether some worker has nothing, and nothing is there for it."""
        return not self.waiting and any(link.is_free for link in self.links.values())

    def free(self):
        """How many workers have nothing, or soon will, and nothing is there for them."""
        return max(0, sum(self._low()) - len(self.waiting))

    def _low(self):
        """Tell of each worker whether it has little left to do."""
        now, low = uptime(), self._pace.low
        return [self._load(link, now) < low for link in self.links.values()]

    def claim_took(self, seconds):
        """Learn how long it takes from asking for Tasks until they can be handed out."""
        self._pace.measure_claim(seconds)

    def put(self, claimed):
        """Take Tasks that have just been claimed."""
        now, apart = uptime(), self._transactional
        first = self._put
        self._put += len(claimed)
        self.waiting.extend(
            [
                Holding(task, now, place, alone=task.lost > 0 or task.type in apart)
                for place, task in enumerate(claimed, first)
            ]
        )

    def put_back(self, holdings):
        """Take Tasks back from a worker that has not started them; they keep their place."""
        now = uptime()
        for holding in holdings:
            holding.since = now
        self.waiting = deque(sorted([*holdings, *self.waiting], key=lambda each: each.place))

    def overstock(self):
        """Remove and return what has waited too long while no worker was free."""
        if not self.waiting:
            return []
        limit = uptime() - PATIENCE
        surplus = [holding for holding in self.waiting if holding.since < limit]
        for holding in surplus:
            self.waiting.remove(holding)
        if surplus:
            self._pace.slow_down()
        return surplus

    # Handing out

    def hand_out(self):
        """Give waiting Tasks to all workers when one of them has little left to do.

        Each gets enough for a while: a message costs its reader time, and so does a claim.
        Returns those that were only reserved for a worker: an Instance that was
        lost before runs alone, and only after its start is recorded; so does one of a
        transactional Type, whose worker records its end.
        """
        if not self.waiting or not any(self._low()):
            return []
        reserved = []
        given = defaultdict(list)
        while self.waiting:
            holding = self.waiting[0]
            link = self._next_link(holding)
            if link is None:
                break
            if holding.alone and not holding.start_known:
                link.reserved = self.waiting.popleft()
                reserved.append(holding)
            else:
                self._take_piece(link, given[link])
        for link, piece in given.items():
            self._send(link, piece)
        return reserved

    def _next_link(self, holding):
        """The worker that would start this first; None if none would soon."""
        now = uptime()
        best, least = None, AHEAD
        for link in self.links.values():
            load = self._load(link, now)
            if load < least and self._fits(link, load, holding):
                best, least = link, load
        return best

    @staticmethod
    def _fits(link, load, holding):
        """Whether this would soon be started behind what a worker has in hand."""
        if not link.hand:
            return link.reserved is None
        alone = holding.alone or link.first.alone
        return load < AHEAD and len(link.hand) < MAX_AHEAD and not alone

    def _take_piece(self, link, given):
        """Put the next waiting Tasks into a worker's hand, as long as they fit."""
        now, waiting = uptime(), self.waiting
        share = len(waiting) // (2 * len(self.links))
        load = self._load(link, now)
        for _ in range(max(1, min(PIECE, share))):
            holding = waiting.popleft()
            self._add(link, holding, now)
            given.append(holding)
            load += holding.expected
            # As _fits() says, of a hand in which nothing before this one is alone.
            if not waiting or holding.alone or waiting[0].alone:
                return
            if load >= AHEAD or len(link.hand) >= MAX_AHEAD:
                return

    def _add(self, link, holding, now):
        holding.since = now
        holding.expected = self._pace.expected(holding.claimed.type)
        link.add(holding)

    def _send(self, link, piece):
        """Send tasks to a worker, each with the right to start it."""
        link.tokens.give([holding.serial for holding in piece])
        tasks = packed(piece)
        try:
            for first in range(0, len(tasks), PACKET):
                link.channel.send(tasks[first : first + PACKET], wait=False)
        except (BlockingIOError, Closed):
            # It does not read, or is dead: without a token it starts none of them.
            self.put_back(self.unstarted(link))

    def release_reserved(self, key):
        """Hand a reserved Task to its worker, now that its start is recorded."""
        link, holding = self.find(key)
        if self.take_reserved(key):
            self._add(link, holding, uptime())
            self._send(link, [holding])

    def take_reserved(self, key):
        """Remove a Task that is reserved for a worker; returns it in a list, empty if it is not."""
        link, holding = self.find(key)
        if holding is None or holding is not link.reserved:
            return []
        link.reserved = None
        return [holding]

    def ended(self, link, key, seconds):
        """A worker has ended a Task; returns the holding, or None if it is unknown."""
        holding = link.drop(key)
        if holding is not None:
            self._pace.measure(holding.claimed.type, seconds - holding.paused)
        return holding

    # Taking back

    def take_back(self):
        """Take unstarted Tasks from workers that keep them too long."""
        now = uptime()
        is_free = self.has_free()
        for link in self.links.values():
            if len(link.hand) < 2 or link.running is None:
                continue
            waited = now - max(link.running.started, _second(link).since)
            if waited >= (STEAL_AFTER if is_free else PATIENCE / 2):
                taken = self.unstarted(link)
                if taken:
                    journal.taken_back(worker=link.slot, count=len(taken))
                self.put_back(taken)

    def pause(self, most):
        """Return for how long nothing has to be looked at, in seconds, ``most`` at the longest."""
        now = uptime()
        for link in self.links.values():
            first = link.first
            if first is None:
                continue
            if not first.start_known or len(link.hand) > 1:
                most = min(most, LOOK_AFTER)
            until_low = self._load(link, now) - self._pace.low
            if until_low > 0:
                most = min(most, until_low)
        return min(most, AHEAD) if self.waiting else most

    def take_unstarted_back(self, key):
        """Take back what this Task's worker has not started, if it has not begun it."""
        link, holding = self.find(key)
        if holding is not None and holding is not link.reserved and holding.started is None:
            self.put_back(self.unstarted(link))

    def unstarted(self, link):
        """Take back every Task that the worker has no right to start any more."""
        taken = set(link.tokens.take_all())
        return [link.drop(h.key) for h in list(link.hand.values()) if h.serial in taken]


def _second(link):
    hand = iter(link.hand.values())
    next(hand)
    return next(hand)

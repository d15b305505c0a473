"""The pool: the workers with the tasks assigned to each, and the Tasks that wait for one."""

from collections import deque

from .. import journal
from ..system.processes import uptime
from .hand_out import HandOut
from .pace import AHEAD, MAX_AHEAD, Pace
from .worker_link import Holding

# A claimed Task that no worker could start for this long is handed back, so
# that another daemon can have it.
PATIENCE = 1.0
# A task that its worker has not started within this many seconds goes to a free worker.
STEAL_AFTER = 0.01
# The dispatcher notices within this many seconds that a worker has started a task.
LOOK_AFTER = 0.02


class Pool:
    """The workers, and the claimed Tasks that wait for one."""

    def __init__(self, transactional=()):
        self._transactional = frozenset(transactional)
        # The Types that call a downstream: a worker gets one Task of them at a time.
        self.single = ()
        self.links = {}
        self.waiting = deque()
        self._pace = Pace()
        self._hand_out = HandOut(self, self._pace)
        self._put = 0

    # The Tasks and the workers

    def __len__(self):
        """Return the number of Tasks that this daemon holds."""
        return len(self.waiting) + sum(
            len(link.assigned) + (link.reserved is not None) for link in self.links.values()
        )

    def holdings(self):
        """Yield every Task that this daemon holds and that has not ended."""
        yield from self.waiting
        for link in self.links.values():
            yield from link.assigned.values()
            if link.reserved is not None:
                yield link.reserved

    def find(self, key):
        """Return ``(link, holding)`` of an attempt that is assigned to, or reserved for, a worker.

        Both are None if there is no such attempt.
        """
        for link in self.links.values():
            if key in link.assigned:
                return link, link.assigned[key]
            if link.reserved is not None and link.reserved.key == key:
                return link, link.reserved
        return None, None

    def take_waiting(self, key):
        """Remove and return a waiting Task; None if it does not wait here."""
        for holding in self.waiting:
            if holding.key == key:
                self.waiting.remove(holding)
                return holding
        return None

    def take_all_waiting(self):
        """Remove and return all waiting Tasks."""
        waiting = list(self.waiting)
        self.waiting.clear()
        return waiting

    def drop(self, key):
        """Forget a Task; return ``(link, holding)``. The link is None unless a worker has it."""
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
        """Forget a worker and return its link; the caller deals with its tasks."""
        return self.links.pop(slot)

    # Claiming

    def load(self, link, now):
        """Return the time that a worker is expected to need for its tasks, in seconds."""
        if link.reserved is not None or not link.takes_tasks:
            return float("inf")
        running = link.running
        if running is None:
            return link.expected
        passed = now - running.started
        if passed > running.expected + AHEAD or running.pause is not None:
            return float("inf")  # the task takes longer than expected, or is paused
        return max(link.expected - passed, 1e-6)

    def wanted(self, behind=0):
        """Return the number of Tasks that the workers could start soon, beyond those they have.

        ``behind`` is the number of unrecorded changes beyond the next batch. Each counts as an
        assigned Task, since running more is no use if it cannot be recorded. The result is at
        least 1 if a worker has nothing.
        """
        now = uptime()
        room = sum(
            min(self._pace.room(self.load(link, now)), MAX_AHEAD - len(link.assigned))
            for link in self.links.values()
        )
        return max(int(self.has_free()), room - len(self.waiting) - behind)

    def is_low(self):
        """Tell whether some worker has little left to do, and no Task waits."""
        return not self.waiting and any(self.low())

    def has_free(self):
        """Tell whether some worker has nothing to do, and no Task waits."""
        return not self.waiting and any(link.is_free for link in self.links.values())

    def free(self):
        """Return the number of workers that have little left to do, minus the waiting Tasks."""
        return max(0, sum(self.low()) - len(self.waiting))

    def low(self):
        """Return a list that says, for each worker, whether it has little left to do."""
        now, low = uptime(), self._pace.low
        return [self.load(link, now) < low for link in self.links.values()]

    def claim_took(self, seconds):
        """Note the time from the start of a claim until its Tasks can be handed out."""
        self._pace.measure_claim(seconds)

    def put(self, claimed):
        """Add Tasks that have just been claimed."""
        now, apart = uptime(), self._transactional
        first = self._put
        self._put += len(claimed)
        new = [
            Holding(task, now, place, alone=task.lost > 0 or task.type in apart)
            for place, task in enumerate(claimed, first)
        ]
        for holding in new if self.single else ():
            holding.single |= holding.type in self.single
        self.waiting.extend(new)

    def put_back(self, holdings):
        """Let Tasks that their worker has not started wait again; they keep their place."""
        now = uptime()
        for holding in holdings:
            holding.since = now
        self.waiting = deque(sorted([*holdings, *self.waiting], key=lambda each: each.place))

    def overstock(self):
        """Remove and return the Tasks that have waited too long while no worker was free."""
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
        """Give waiting Tasks to the workers; see :meth:`.HandOut.hand_out`."""
        return self._hand_out.hand_out()

    def release_reserved(self, key):
        """Give a reserved Task to its worker, now that its start is recorded."""
        link, holding = self.find(key)
        if self.take_reserved(key):
            self._hand_out.give(link, holding)

    def take_reserved(self, key):
        """Remove a reserved Task and return it in a list; the list is empty if there is none."""
        link, holding = self.find(key)
        if holding is None or holding is not link.reserved:
            return []
        link.reserved = None
        return [holding]

    def ended(self, link, key, seconds):
        """Remove a Task that its worker has ended; return its holding, or None if unknown."""
        holding = link.drop(key)
        if holding is not None:
            self._pace.measure(holding.type, seconds - holding.paused)
        return holding

    # Taking back

    def take_back(self):
        """Take unstarted Tasks from workers that keep them too long."""
        now = uptime()
        is_free = self.has_free()
        for link in self.links.values():
            if len(link.assigned) < 2 or link.running is None:
                continue
            waited = now - max(link.running.started, _second(link).since)
            if waited >= (STEAL_AFTER if is_free else PATIENCE / 2):
                taken = self.unstarted(link)
                if taken:
                    journal.taken_back(worker=link.slot, count=len(taken))
                self.put_back(taken)

    def pause(self, longest):
        """Return the time until a worker has to be looked at, in seconds, ``longest`` at most."""
        now = uptime()
        for link in self.links.values():
            first = link.first
            if first is None:
                continue
            if not first.start_known or len(link.assigned) > 1:
                longest = min(longest, LOOK_AFTER)
            until_low = self.load(link, now) - self._pace.low
            if until_low > 0:
                longest = min(longest, until_low)
        return min(longest, AHEAD) if self.waiting else longest

    def take_unstarted_back(self, key):
        """If this Task's worker has not started it, take back all its unstarted Tasks."""
        link, holding = self.find(key)
        if holding is not None and holding is not link.reserved and holding.started is None:
            self.put_back(self.unstarted(link))

    def unstarted(self, link):
        """Take the worker's start tokens; remove and return the Tasks that it thus cannot start."""
        taken = set(link.tokens.take_all())
        return [link.drop(h.key) for h in list(link.assigned.values()) if h.serial in taken]


def _second(link):
    hand = iter(link.assigned.values())
    next(hand)
    return next(hand)

"""The dispatcher's view of its workers: what each has in hand, and what it gets next."""

from collections import deque

from . import journal
from .channel import Closed
from .hand import Holding
from .pace import AHEAD, Pace
from .processes import uptime

# A claimed Task that no worker could start for this long is handed back, so
# that another daemon can have it.
PATIENCE = 1.0


class Pool:
    """The workers, and the claimed Tasks that none of them has yet."""

    def __init__(self):
        self.links = {}
        self.waiting = deque()
        self._pace = Pace()

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
            for holding in (*link.hand.values(), link.reserved):
                if holding is not None and holding.key == key:
                    return link, holding
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
        del link.hand[key]
        return link, holding

    def add(self, link):
        self.links[link.slot] = link

    def remove(self, slot):
        """Forget a worker. Returns its link; the caller disposes of what it had in hand."""
        return self.links.pop(slot)

    # Claiming

    def wanted(self):
        """How many more Tasks the workers could start soon."""
        if not self.links:
            return 0
        each = self._pace.tasks_ahead()
        room = sum(max(0, each - len(link.hand)) for link in self._open_links())
        return max(0, room - len(self.waiting))

    def _open_links(self):
        """The workers that could start something soon: not those whose task has become long."""
        return [
            link
            for link in self.links.values()
            if link.reserved is None
            and (link.running is None or uptime() - link.running.started < AHEAD)
        ]

    def put(self, claimed):
        """Take Tasks that have just been claimed."""
        self.waiting.extend(Holding(task, uptime()) for task in claimed)

    def put_back(self, holdings):
        """Take Tasks back from a worker that has not started them; they come first."""
        for holding in reversed(holdings):
            holding.since = uptime()
            self.waiting.appendleft(holding)

    def overstock(self):
        """Remove and return what has waited too long while no worker was free."""
        limit = uptime() - PATIENCE
        surplus = [holding for holding in self.waiting if holding.since < limit]
        for holding in surplus:
            self.waiting.remove(holding)
        if surplus:
            self._pace.slow_down()
        return surplus

    # Handing out

    def hand_out(self):
        """Give waiting Tasks to workers.

        Returns those that were only reserved for a worker: an Instance that
        was lost before runs alone, and only after its start is recorded.
        """
        reserved = []
        while self.waiting:
            link = self._next_link(self.waiting[0])
            if link is None:
                break
            holding = self.waiting.popleft()
            if holding.claimed.lost and not holding.start_known:
                link.reserved = holding
                reserved.append(holding)
            elif not self._send(link, holding):
                self.waiting.appendleft(holding)
                break
        return reserved

    def release_reserved(self, key):
        """Hand a reserved Task to its worker, now that its start is recorded."""
        link, holding = self.find(key)
        if self.take_reserved(key) and not self._send(link, holding):
            self.waiting.appendleft(holding)

    def take_reserved(self, key):
        """Remove a Task that is reserved for a worker; returns it in a list, empty if it is not."""
        link, holding = self.find(key)
        if holding is None or holding is not link.reserved:
            return []
        link.reserved = None
        return [holding]

    def _next_link(self, holding):
        links = self._open_links()
        free = next((link for link in links if not link.hand), None)
        if free is not None or holding.claimed.lost:
            return free
        fitting = [link for link in links if self._fits(link, holding)]
        return min(fitting, key=lambda link: len(link.hand), default=None)

    def _fits(self, link, holding):
        """Whether a worker's hand, with one more task, is still soon done."""
        hand = [*link.hand.values(), holding]
        if any(each.claimed.lost for each in hand):
            return False
        return self._pace.is_short([each.claimed.type for each in hand])

    @staticmethod
    def _send(link, holding):
        try:
            link.ours.send(holding.claimed, wait=False)
        except (BlockingIOError, Closed):
            return False
        link.hand[holding.key] = holding
        return True

    # What workers say

    def started(self, link, key):
        """A worker has started a Task; returns the holding, or None if it is unknown."""
        holding = link.hand.get(key)
        if holding is not None:
            holding.started = uptime()
        return holding

    def ended(self, link, key):
        """A worker has ended a Task; returns the holding, or None if it is unknown."""
        holding = link.hand.pop(key, None)
        if holding is not None and holding.started is not None:
            self._pace.measure(holding.claimed.type, uptime() - holding.started)
        return holding

    # Taking back

    def take_back(self):
        """Take unread Tasks from workers whose task has become long."""
        for link in self.links.values():
            running = link.running
            if len(link.hand) > 1 and running and uptime() - running.started >= AHEAD:
                taken = self.unread(link)
                if taken:
                    journal.taken_back(worker=link.slot, count=len(taken))
                self.put_back(taken)

    def pause(self, most):
        """Return for how long nothing has to be looked at, in seconds, ``most`` at the longest."""
        behind = any(len(link.hand) > 1 for link in self.links.values())
        return min(most, AHEAD) if behind or self.waiting else most

    def take_unread_back(self, key):
        """Take back what this Task's worker has not read, if it has not begun it."""
        link, holding = self.find(key)
        if holding is not None and holding.started is None:
            self.put_back(self.unread(link))

    def unread(self, link):
        """Take back every Task that the worker has not read yet."""
        taken = []
        for claimed in link.theirs.drain():
            holding = link.hand.pop((claimed.instance, claimed.attempt), None)
            if holding is not None:
                taken.append(holding)
        return taken

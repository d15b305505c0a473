"""Handing out waiting Tasks: choosing the worker, and the number of Tasks that it gets."""

from collections import defaultdict

from ..shared.channel import Closed
from ..shared.packing import packed
from ..system.processes import uptime
from .pace import AHEAD, MAX_AHEAD

# The most tasks that go to a worker at a time; then the next worker has its turn.
PIECE = 16
# The number of tasks of usual size that fit into one packet.
PACKET = 128


class HandOut:
    """The part of the pool that sends waiting Tasks to workers."""

    def __init__(self, pool, pace):
        self._pool = pool
        self._pace = pace

    def hand_out(self):
        """Send waiting Tasks to the workers when one of them has little left to do.

        Each worker gets enough for a while, since each message and each claim takes time.
        Return the Tasks that were only reserved for a worker. A Task is reserved if its
        Instance was lost before, or if its Type is transactional (the worker records its end).
        It runs alone, and only after its start is recorded.
        """
        if not self._pool.waiting or not any(self._pool.low()):
            return []
        reserved = []
        given = defaultdict(list)
        while self._pool.waiting:
            holding = self._pool.waiting[0]
            link = self._next_link(holding)
            if link is None:
                break
            if holding.alone and not holding.start_known:
                link.reserved = self._pool.waiting.popleft()
                reserved.append(holding)
            else:
                self._take_piece(link, given[link])
        for link, piece in given.items():
            self._send(link, piece)
        return reserved

    def _next_link(self, holding):
        """Return the worker that would start this Task first; None if none would soon."""
        now = uptime()
        best, least = None, AHEAD
        for link in self._pool.links.values():
            load = self._pool.load(link, now)
            if load < least and self._fits(link, load, holding):
                best, least = link, load
        return best

    @staticmethod
    def _fits(link, load, holding):
        """Tell whether the worker would start this Task soon, after the tasks that it has."""
        if not link.assigned:
            return link.reserved is None
        alone = holding.single or link.first.single
        return load < AHEAD and len(link.assigned) < MAX_AHEAD and not alone

    def _take_piece(self, link, given):
        """Assign the next waiting Tasks to a worker, as long as they fit."""
        now, waiting = uptime(), self._pool.waiting
        share = len(waiting) // (2 * len(self._pool.links))
        load = self._pool.load(link, now)
        for _ in range(max(1, min(PIECE, share))):
            holding = waiting.popleft()
            self._add(link, holding, now)
            given.append(holding)
            load += holding.expected
            # These checks equal _fits(), since no task before this one is alone.
            if not waiting or holding.single or waiting[0].single:
                return
            if load >= AHEAD or len(link.assigned) >= MAX_AHEAD:
                return

    def _add(self, link, holding, now):
        holding.since = now
        holding.expected = self._pace.expected(holding.type)
        link.add(holding)

    def _send(self, link, piece):
        """Send tasks to a worker, and a start token for each."""
        link.tokens.give([holding.serial for holding in piece])
        tasks = packed(piece)
        try:
            for first in range(0, len(tasks), PACKET):
                link.channel.send(tasks[first : first + PACKET], wait=False)
        except (BlockingIOError, Closed):
            # The worker does not read, or is dead. Take the tokens back, so it starts no task.
            self._pool.put_back(self._pool.unstarted(link))

    def give(self, link, holding):
        """Give one Task to a worker."""
        self._add(link, holding, uptime())
        self._send(link, [holding])

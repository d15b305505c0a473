"""Handing out: which worker gets which of the waiting Tasks, and how many at once."""

from collections import defaultdict

from ..shared.channel import Closed
from ..shared.packing import packed
from ..system.processes import uptime
from .pace import AHEAD, MAX_AHEAD

# At most so many tasks at a time go to a worker, then the next worker has its turn.
PIECE = 16
# The number of tasks of usual size that fit into one packet.
PACKET = 128


class HandOut:
    """Takes Tasks from those that wait in the pool, and sends them to its workers."""

    def __init__(self, pool, pace):
        self._pool = pool
        self._pace = pace

    def hand_out(self):
        """Give waiting Tasks to all workers when one of them has little left to do.

        Each gets enough for a while: a message costs its reader time, and so does a claim.
        Returns those that were only reserved for a worker: an Instance that was
        lost before runs alone, and only after its start is recorded; so does one of a
        transactional Type, whose worker records its end.
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
        """The worker that would start this first; None if none would soon."""
        now = uptime()
        best, least = None, AHEAD
        for link in self._pool.links.values():
            load = self._pool.load(link, now)
            if load < least and self._fits(link, load, holding):
                best, least = link, load
        return best

    @staticmethod
    def _fits(link, load, holding):
        """Whether this would soon be started behind the tasks that a worker has."""
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
            # The same as _fits(), where no task before this one is alone.
            if not waiting or holding.single or waiting[0].single:
                return
            if load >= AHEAD or len(link.assigned) >= MAX_AHEAD:
                return

    def _add(self, link, holding, now):
        holding.since = now
        holding.expected = self._pace.expected(holding.type)
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
            self._pool.put_back(self._pool.unstarted(link))

    def give(self, link, holding):
        """Give one Task to a worker."""
        self._add(link, holding, uptime())
        self._send(link, [holding])

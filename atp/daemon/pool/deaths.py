"""The deaths of workers: their attempts are lost, or go to other workers."""

import time

from ... import messages
from ...operations.registry import registry
from ...states import Event
from .. import journal
from ..shared import outcome as outcomes
from ..system.processes import uptime


class Deaths:
    """The treatment of a worker's death: its running attempt is lost, others get other workers."""

    def __init__(self, core, attempts):
        self._core = core
        self._attempts = attempts

    def died(self, link, running, why, left=0, cause="", stack=None):
        """Handle the death of a worker; ``running`` is the key of the attempt it ran, or None.

        ``why`` is the reason of the death, and ``cause`` is the reason as data. ``left`` is the
        number of the worker's own processes that were killed with it. ``stack`` is the stack of
        the attempt before the worker was killed, or None.
        """
        holdings = [*link.assigned.values()] + ([link.reserved] if link.reserved else [])
        ran = link.assigned.get(running) or link.revoked.get(running)
        if ran is not None:
            self._attempts.usage.ended(ran, ran.run_time(uptime()))
        again = []
        for holding in holdings:
            if holding.key == running:
                if stack is not None and not holding.concluded:
                    self._attempts.stacks.record(link, holding, stack, detail=cause)
                self._lose(holding, link, why, left, cause)
            elif holding.start_known:
                # Its start is recorded, so it cannot simply be handed to another worker.
                self._attempts.release(holding, messages.worker_died_early())
            else:
                again.append(holding)
        if again:
            journal.taken_back(worker=link.slot, count=len(again))
        self._core.pool.put_back(again)
        self._core.queue.free()
        if self._attempts.stopping:
            self._attempts.hand_back_unstarted(self._attempts.stopping)

    def _lose(self, holding, link, why, left, cause):
        attempts = self._attempts
        attempts.ending.forget(holding.key)
        if not holding.start_known:
            attempts.start(holding, link, holding.started or uptime())
        if holding.concluded:
            self._core.counters.finished(holding)
            return
        if registry.is_transactional(holding.type):
            # The worker may have committed the end: the fence tells when the loss is recorded.
            self._core.unrecorded.doubt(holding.key)
            attempts.undecided[holding.key] = holding
        if holding.ask == Event.RELEASE:
            attempts.release(holding, holding.why, link)
            return
        if holding.ask == Event.FAIL:
            attempts.pausing.over(holding, link, time.time())
        facts = {"time": attempts.times.now(holding), "who": attempts.who(link)}
        facts["holding"] = holding
        if holding.ask == Event.FAIL:
            message = outcomes.killed(holding.why, why, holding.claimed, left)
            move = outcomes.cancelled(message, holding.claimed, **facts)
        else:
            move = outcomes.lost(why, holding.claimed, detail=cause, **facts)
        self._core.unrecorded.add(move)
        if holding.key not in attempts.undecided:
            self._core.counters.lost_worker(holding, move)

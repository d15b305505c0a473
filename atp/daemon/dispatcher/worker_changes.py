"""Changes of workers that the supervisor reports: started, died, stopped, going on."""

from ... import messages as attempt_messages
from ..pool.deaths import Deaths
from ..pool.worker_link import WorkerLink
from ..shared import messages
from ..shared.channel import Channel
from ..shared.tokens import Tokens


class WorkerChanges:
    """The part of the dispatcher that applies the supervisor's reports to the pool.

    ``sessions`` are the pids of the living workers.
    """

    def __init__(self, core, attempts, intake):
        self._core = core
        self._attempts = attempts
        self._deaths = Deaths(core, attempts)
        self._intake = intake
        self.sessions = set()
        self.on_message = {
            messages.WorkerStarted: self._add,
            messages.WorkerDied: self._remove,
            messages.Frozen: self._frozen,
            messages.Thawed: self._thawed,
            messages.StackTaken: self._stack_taken,
        }

    def _add(self, slot, pid, channel, taking, giving):
        channel, tokens = Channel.from_descriptor(channel), Tokens(taking, giving)
        link = WorkerLink(slot, pid, channel, tokens, self._core.page.ring(slot))
        link.is_starting = True
        # The last records of the slot's previous worker are of no use any more.
        link.ring.skip()
        self.sessions.add(pid)
        self._core.pool.add(link)
        self._intake.add(link)
        # The daemon's row shows its workers from the start.
        self._core.timers.now("renew")

    def _find(self, slot, pid):
        link = self._core.pool.links.get(slot)
        return link if link is not None and link.pid == pid else None

    def _remove(self, slot, pid, how, why, running, left, cause, stack):
        link = self._find(slot, pid)
        if link is None:
            return
        self._intake.remove(link)
        self._core.pool.remove(slot)
        self.sessions.discard(pid)
        why = why or attempt_messages.worker_died(how)
        self._deaths.died(link, running, why, left, cause, stack)
        link.close()

    def _frozen(self, slot, pid, key, at):
        link = self._find(slot, pid)
        if link is not None:
            self._attempts.pausing.begun(link, key, at, 0, is_frozen=True)

    def _thawed(self, slot, pid, key, at):
        link = self._find(slot, pid)
        if link is not None:
            self._attempts.pausing.thawed(link, key, at)

    def _stack_taken(self, slot, pid, key, at, stack):
        link = self._find(slot, pid)
        if link is not None:
            self._attempts.stacks.taken.append((link, key, at, stack))

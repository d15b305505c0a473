"""Paused attempts, and the workers that take their place meanwhile (RFC 14's PAUSED).

An attempt pauses itself, either at its next check for an ask or because its handler wants to.
The supervisor stops the worker of a stoppable Type. A paused worker can run nothing else, so
the supervisor starts another. The attempt goes on when the number of workers at work allows
it: a worker that has nothing to do exits to make room.
"""

from dataclasses import dataclass, field

from ... import messages as attempt_messages
from ...commands import PAUSE
from ...operations.registry import registry
from ...states import Event
from ..shared import messages, running_page
from ..system.processes import uptime

# A dismissed worker that has not exited is dismissed again after this, in seconds.
TELL_AGAIN = 0.2


@dataclass
class Pause:
    """The ``number``-th pause of an attempt, ``since`` a time on the uptime clock.

    ``is_frozen``: the supervisor has stopped the worker. ``is_wanted``: an operator still wants
    the pause. ``is_over``: the handler is ready to go on. ``may_go``: the dispatcher has told
    the attempt to go on.
    """

    number: int
    since: float
    is_frozen: bool = False
    is_wanted: bool = False
    is_over: bool = False
    may_go: bool = field(default=False, init=False)

    @property
    def wants_to_go(self):
        """Whether the attempt waits for a place to go on, and no operator wants it paused."""
        if self.may_go or self.is_wanted:
            return False
        return self.is_over


class Pausing:
    """The pauses of a dispatcher's attempts.

    ``places`` is the most workers at work. ``record(holding, event, link, at, message)`` queues
    a Move to be recorded. ``tell(message)`` sends to the supervisor.
    """

    def __init__(self, pool, page, places, record, tell):
        self._pool = pool
        self._page = page
        self._places = places
        self._record = record
        self._tell = tell
        self._spare = 0

    def asked(self, key, request):
        """Ask an attempt to pause or to go on, as an operator wants; called again and again."""
        link, holding = self._pool.find(key)
        if holding is None or holding.started is None or holding.ask:
            return
        wanted = request == PAUSE
        if wanted and registry.is_transactional(holding.type):
            return  # the asker does not know the Type: a pause would keep the transaction open
        if holding.pause is not None:
            holding.pause.is_wanted = wanted
        elif wanted and registry.is_stoppable(holding.type):
            # Repeat this: the supervisor does not stop it while it writes a checkpoint.
            holding.is_to_pause = True
            self._tell(messages.Freeze(link.slot, link.pid, key))
        elif wanted and not holding.is_to_pause:
            holding.is_to_pause = True
            self._page.ask(link.slot, *key, running_page.PAUSE)
        elif not wanted and holding.is_to_pause:
            holding.is_to_pause = False
            self._page.ask(link.slot, *key, running_page.GO)

    def begun(self, link, key, at, number, message="", *, is_own=False, is_frozen=False):
        """Note that an attempt has paused for the ``number``-th time.

        ``is_own``: the handler wanted the pause, and says itself when it is ready to go on.
        """
        holding = link.assigned.get(key)
        if is_frozen and (holding is None or holding.pause is not None):
            # The worker was stopped after it had reported the end of the attempt, or after the
            # handler had paused by itself: then it can say when it is ready to go on.
            self._tell(messages.Thaw(link.slot, link.pid, key))
        if holding is None or holding.pause is not None:
            return
        is_wanted = holding.is_to_pause
        pause = Pause(number, uptime(), is_frozen, is_wanted=is_wanted, is_over=not is_own)
        holding.pause, holding.is_to_pause = pause, False
        self._record(holding, Event.PAUSE, link, at, message)

    def ending(self, link, key):
        """Note that the handler of a paused attempt is ready to go on."""
        holding = link.assigned.get(key)
        if holding is not None and holding.pause is not None:
            holding.pause.is_over = True

    def thawed(self, link, key, at):
        """Note that the supervisor has let a stopped worker go on."""
        holding = link.assigned.get(key)
        if holding is not None and holding.pause is not None and holding.pause.is_frozen:
            self.over(holding, link, at)

    def ended(self, link, key, at):
        """Note that a paused attempt has gone on."""
        holding = link.assigned.get(key)
        if holding is not None:
            self.over(holding, link, at)

    def over(self, holding, link, at):
        """Record that an attempt has gone on, if it was paused."""
        if holding.pause is not None:
            holding.paused += uptime() - holding.pause.since
            holding.pause = None
            # An attempt that was asked to end goes on in order to end.
            message = attempt_messages.resumed_to_end(holding.why) if holding.ask else ""
            self._record(holding, Event.RESUME, link, at, message)

    def turn(self):
        """Adjust the number of workers, and let paused attempts go on; called at every turn."""
        links = self._pool.links.values()
        paused = [link for link in links if link.is_paused]
        for link in paused:
            if link.running.ask and link.running.pause.is_frozen:
                self._go(link)  # a stopped attempt cannot end
        if paused or self._spare or len(links) > self._places:
            self._want_spare(len(paused))
            self._let_go_on([link for link in paused if link.is_paused])
        for link in links:
            # The worker may have been running something, and so was not killed: try again.
            if link.is_leaving and uptime() >= link.dismissed_at + TELL_AGAIN:
                self._dismiss(link)

    def _want_spare(self, paused):
        # The supervisor must not replace a worker that makes room.
        leaving = sum(link.is_leaving for link in self._pool.links.values())
        count = max(0, min(paused, self._places) - leaving)
        if count != self._spare:
            self._spare = count
            self._tell(messages.SpareWanted(count))

    def _let_go_on(self, paused):
        """Let the attempts that have been paused longest go on; free workers make room for them."""
        at_work = len(self._pool.links) - len(paused)
        ready = [link for link in paused if link.running.pause.wants_to_go]
        ready.sort(key=lambda link: link.running.pause.since)
        places = max(0, self._places - at_work)
        for link in ready[:places]:
            self._go(link)
        if len(ready) > places or at_work > self._places:
            self._make_room()

    def _make_room(self):
        """Dismiss one worker that has nothing to do, unless another one is leaving already."""
        links = self._pool.links.values()
        if not any(link.is_leaving for link in links):
            # One that is not ready yet has least to lose.
            unneeded = [link for link in links if link.is_free or link.is_starting]
            unneeded.sort(key=lambda link: not link.is_starting)
            for link in unneeded[:1]:
                link.is_leaving = True
                self._want_spare(sum(link.is_paused for link in links))
                self._dismiss(link)

    def _dismiss(self, link):
        """Ask the supervisor to kill a worker, unless it runs something."""
        link.dismissed_at = uptime()
        why = attempt_messages.evicted_for_resume()
        self._tell(messages.Kill(link.slot, link.pid, running_page.NOTHING, why))

    def _go(self, link):
        holding = link.running
        holding.pause.may_go = True
        if holding.pause.is_frozen:
            self._tell(messages.Thaw(link.slot, link.pid, holding.key))
        else:
            self._page.ask(link.slot, *holding.key, running_page.GO, holding.pause.number)

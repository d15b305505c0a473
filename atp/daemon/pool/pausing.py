"""Paused attempts, and the workers that take their place meanwhile (RFC 14's PAUSED).

An attempt pauses by itself, at its next look or where its handler says so; one of a
stoppable Type is stopped by the supervisor. Its worker is of no use then, so the
supervisor starts another. It goes on when there is a place for it again: when a
worker has nothing to do, that one makes room.
"""

from dataclasses import dataclass, field

from ...states import Event
from ...store.values import PAUSE
from ...verbs.registry import registry
from ...words import attempt_messages
from ..shared import messages, running_page
from ..system.processes import uptime

# A worker that has not ended is dismissed again after this, in seconds.
TELL_AGAIN = 0.2


@dataclass
class Pause:
    """One pause of an attempt: which, since when on the uptime clock, and what is wanted.

    ``is_frozen`` if its worker is stopped, ``is_wanted`` as long as an operator wants it,
    ``is_over`` when its handler would go on, ``may_go`` when it has been told so.
    """

    number: int
    since: float
    is_frozen: bool = False
    is_wanted: bool = False
    is_over: bool = False
    may_go: bool = field(default=False, init=False)

    @property
    def wants_to_go(self):
        """Whether it would go on now, and nobody objects."""
        if self.may_go or self.is_wanted:
            return False
        return self.is_over


class Pausing:
    """The pauses of a dispatcher's attempts.

    ``record(holding, event, link, at, message)`` records a move later, ``tell``
    speaks to the supervisor; ``places`` is how many workers may be at work.
    """

    def __init__(self, pool, page, places, record, tell):
        self._pool = pool
        self._page = page
        self._places = places
        self._record = record
        self._tell = tell
        self._spare = 0

    def asked(self, key, request):
        """An operator wants this attempt to pause, or to go on; called again and again."""
        link, holding = self._pool.find(key)
        if holding is None or holding.started is None or holding.ask:
            return
        wanted = request == PAUSE
        if wanted and registry.is_transactional(holding.type):
            return  # asked by who does not know the Type: it would keep its transaction open
        if holding.pause is not None:
            holding.pause.is_wanted = wanted
        elif wanted and registry.is_stoppable(holding.type):
            # Again and again: it is not stopped while it writes a checkpoint.
            holding.is_to_pause = True
            self._tell(messages.Freeze(link.slot, link.pid, key))
        elif wanted and not holding.is_to_pause:
            holding.is_to_pause = True
            self._page.ask(link.slot, *key, running_page.PAUSE)
        elif not wanted and holding.is_to_pause:
            holding.is_to_pause = False
            self._page.ask(link.slot, *key, running_page.GO)

    def begun(self, link, key, at, number, message="", *, is_own=False, is_frozen=False):
        """The attempt has paused; ``number`` counts its pauses.

        If the handler itself wanted that (``is_own``), it says when it would go on.
        """
        holding = link.assigned.get(key)
        if holding is None and is_frozen:
            # It was stopped between its report of the end and the next attempt.
            self._tell(messages.Thaw(link.slot, link.pid, key))
        if holding is None or holding.pause is not None:
            return
        is_wanted = holding.is_to_pause
        pause = Pause(number, uptime(), is_frozen, is_wanted=is_wanted, is_over=not is_own)
        holding.pause, holding.is_to_pause = pause, False
        self._record(holding, Event.PAUSE, link, at, message)

    def ending(self, link, key):
        """The handler would go on."""
        holding = link.assigned.get(key)
        if holding is not None and holding.pause is not None:
            holding.pause.is_over = True

    def ended(self, link, key, at):
        """The attempt has gone on."""
        holding = link.assigned.get(key)
        if holding is not None:
            self.over(holding, link, at)

    def over(self, holding, link, at):
        """If the attempt was paused, it has gone on: it has ended, or is about to."""
        if holding.pause is not None:
            holding.paused += uptime() - holding.pause.since
            holding.pause = None
            # An attempt that is to end goes on for that, without anybody's request.
            message = attempt_messages.resumed_to_end(holding.why) if holding.ask else ""
            self._record(holding, Event.RESUME, link, at, message)

    def turn(self):
        """Keep the number of workers right, and let paused attempts go on."""
        links = self._pool.links.values()
        paused = [link for link in links if link.is_paused]
        for link in paused:
            if link.running.ask and link.running.pause.is_frozen:
                self._go(link)  # it can end only when it runs
        if paused or self._spare or len(links) > self._places:
            self._want_spare(len(paused))
            self._let_go_on([link for link in paused if link.is_paused])
        for link in links:
            # It may have been about to end something, and was spared: it is dismissed again.
            if link.is_leaving and uptime() >= link.dismissed_at + TELL_AGAIN:
                self._dismiss(link)

    def _want_spare(self, paused):
        # A worker that makes room is not to be replaced.
        leaving = sum(link.is_leaving for link in self._pool.links.values())
        count = max(0, min(paused, self._places) - leaving)
        if count != self._spare:
            self._spare = count
            self._tell(messages.SpareWanted(count))

    def _let_go_on(self, paused):
        """Let the longest paused go on first. A worker without a task makes room for it."""
        at_work = len(self._pool.links) - len(paused)
        ready = [link for link in paused if link.running.pause.wants_to_go]
        ready.sort(key=lambda link: link.running.pause.since)
        places = max(0, self._places - at_work)
        for link in ready[:places]:
            self._go(link)
        if len(ready) > places or at_work > self._places:
            self._make_room()

    def _make_room(self):
        """Dismiss a worker that has nothing to do, one at a time."""
        links = self._pool.links.values()
        if not any(link.is_leaving for link in links):
            for link in [link for link in links if link.is_free][:1]:
                link.is_leaving = True
                self._want_spare(sum(link.is_paused for link in links))
                self._dismiss(link)

    def _dismiss(self, link):
        """Have a worker end, unless it runs something. When it is gone the supervisor will say."""
        link.dismissed_at = uptime()
        why = attempt_messages.made_room()
        self._tell(messages.Kill(link.slot, link.pid, running_page.NOTHING, why))

    def _go(self, link):
        holding = link.running
        holding.pause.may_go = True
        if holding.pause.is_frozen:
            self._tell(messages.Thaw(link.slot, link.pid, holding.key))
        else:
            self._page.ask(link.slot, *holding.key, running_page.GO, holding.pause.number)

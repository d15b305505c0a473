"""The dispatcher: the one process of a daemon that talks to the queue.

An event loop over its channels and timers that never waits for the database:
claiming and recording run in two threads, each with a connection of its own.
Claim → hand out → collect → record.
"""

import contextlib
import os
import queue
import selectors
import socket

from ..conf import settings
from ..registry import registry
from ..states import Event
from ..store import get_store
from . import descendants, journal, processes
from .attempts import Attempts
from .channel import Channel, Closed
from .claiming import Claiming
from .database import DatabaseThread, bound_connecting
from .duty import STOPPING, Duty
from .hand import Link
from .hearing import Hearing
from .identity import Identity
from .ledger import LINGER, Ledger
from .listening import Listening
from .membership import Membership
from .pool import Pool
from .processes import uptime
from .recording import Recording
from .stuck import Stuck
from .timers import Timers
from .tokens import Tokens

# Exit statuses, which the supervisor reads; any other means that it died.
DONE, UNDELIVERED, ORPHANED = 0, 4, 5
# A sign of life to the supervisor this often, in seconds.
ALIVE_EVERY = 1.0
# If it turns anyway, so much sooner: less than from one turn to the next.
ALIVE_EARLY = 0.49
# Beyond its grace a stopping daemon tries this long to deliver its results, in seconds.
DELIVERY_GRACE = 10.0
SUMMARY_EVERY = 60.0
# The loop looks at everything at least this often, in seconds.
MAX_TURN = 0.5


class Dispatcher:
    """One dispatcher process.

    ``control`` is its channel to the supervisor, ``mark`` what programs that
    handlers start can be known by, ``previous`` the identities of dispatchers
    before it that may still hold something, ``request`` what they were told last.
    """

    def __init__(self, control, page, options, *, lock="", mark="", previous=(), request=""):
        self._control = control
        self._options = options
        self._page = page
        self._mark = mark
        self._request = request
        self._supervisor = os.getppid()
        types = options.served(task_type.identifier for task_type in registry)
        self._identity = Identity(self._supervisor, types, lock, list(previous))
        self._results = queue.SimpleQueue()
        self._handed = queue.SimpleQueue()
        self._waker, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._stop_at = None
        self._left = False
        self._rang = False
        self._orphaned = False
        self._sessions = set()

    def _furnish(self):
        """Make what lives as long as the loop. Threads start here, so not before the fork."""
        bound_connecting(settings.STATEMENT_TIMEOUT)
        processes.allow_descriptors(6 * self._options.processes + 64)
        self._timers = timers = Timers()
        self._pool = pool = Pool(filter(registry.is_transactional, self._identity.types))
        self._ledger = ledger = Ledger()
        self._claimer = DatabaseThread("atp-claim", self._results, self._wake)
        self._recorder = DatabaseThread("atp-record", self._results, self._wake)
        identity, store = self._identity, get_store()
        self._listening = Listening(store, self._ring, self._hand)
        self._attempts = Attempts(
            pool, ledger, self._page, identity, self._tell, self._options.processes
        )
        self._duty = duty = Duty(self._attempts, timers, self._tell, self._request)
        self._hearing = Hearing(self._selector, ledger, self._attempts)
        self._stuck = Stuck(pool, self._page, self._attempts.endings.kill)
        self._claiming = Claiming(
            self._claimer, store, identity, pool, self._attempts, timers, duty
        )
        self._recording = Recording(
            self._recorder,
            store,
            identity,
            ledger,
            self._attempts,
            timers,
            self._tell,
            self._claiming,
            self._listening,
            duty,
        )
        threads = (self._claimer, self._recorder)
        self._membership = Membership(
            threads, store, identity, pool, ledger, timers, self._tell, duty
        )

    # The loop

    def run(self):
        """Run until told to stop; returns the exit status."""
        for end in (self._waker, self._woken):
            end.setblocking(False)
        self._furnish()
        self._selector.register(self._control, selectors.EVENT_READ, self._on_control)
        self._selector.register(self._woken, selectors.EVENT_READ, self._on_wake)
        if not self._identity.types:
            journal.nothing_to_serve()
        while True:
            for key, _ in self._selector.select(self._pause()):
                if key.fileobj.fileno() >= 0:  # a worker before it may have closed it
                    key.data()
            if self._orphaned or os.getppid() != self._supervisor:
                return self._end_orphaned()
            status = self._turn()
            if status is not None:
                return status

    def _pause(self):
        """How long nothing has to be done unless something comes, in seconds."""
        most = LINGER if self._ledger.waits and not self._recorder.busy else MAX_TURN
        return self._timers.pause(self._attempts.endings.pause(self._pool.pause(most)))

    def orphan(self, signum, frame):
        """The kernel's word that the supervisor is dead."""
        self._orphaned = True
        self._wake()

    def _wake(self):
        with contextlib.suppress(BlockingIOError):
            self._waker.send(b"\0")

    def _ring(self):
        """Called by the thread that listens: something may wait."""
        self._rang = True
        self._wake()

    def _hand(self, daemon, claimed):
        """Called by the thread that listens: an enqueue has handed a Task to this daemon."""
        self._handed.put((daemon, claimed))
        self._wake()

    def _on_wake(self):
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)

    def _turn(self):
        """Do whatever is due; returns the exit status when all is done."""
        while not self._results.empty():
            thread, result = self._results.get()
            thread.answered()
            self._on_result(result)
        if self._left:
            return self._end(DONE)
        self._take_handed()
        if self._rang:
            self._rang = False
            self._attempts.news.call()
        # At work it looks by itself, and would hear its own writing.
        self._listening.listen(
            self._claiming.is_idle(), may_be_handed=self._recording.may_be_handed()
        )
        for thread in (self._claimer, self._recorder):
            thread.cut_if_overdue(settings.STATEMENT_TIMEOUT)
        if self._timers.due("alive", ALIVE_EVERY, early=ALIVE_EARLY):
            self._tell("alive")
        if self._timers.due("summary", SUMMARY_EVERY):
            self._attempts.tally.summarize(SUMMARY_EVERY)
        self._attempts.endings.kill_overdue()
        self._attempts.pausing.turn()
        self._hearing.turn()
        self._stuck.turn()
        for link in self._pool.links.values():
            if link.hand:
                self._attempts.look(link)
        if self._identity.current is not None:
            self._duty.keep()
            self._hand_out()
            self._recording.turn()
            is_ready = self._recording.registered and not self._hearing.is_behind
            self._claiming.turn(not self._attempts.stopping and is_ready)
        elif not self._claimer.busy and not self._recorder.busy:
            # Nothing is on its way under the old identity from here.
            self._membership.rejoin(self._joined)
        return self._ending()

    def _take_handed(self):
        while not self._handed.empty():
            daemon, claimed = self._handed.get()
            # What an earlier identity held was settled when this one joined.
            if daemon == self._identity.current:
                self._recording.handed()
                self._claiming.handed(claimed)
                self._hand_out()
        if self._recording.may_have_missed_handing():
            journal.channel_lost()
            self._identity.lose()

    def _on_result(self, result):
        if result.error is None:
            self._membership.answered(result)
            result.then(result)
        elif not self._recording.can_isolate(result):
            self._membership.failed(result)

    def _joined(self, kept, lost):
        self._attempts.tally.lost(lost, "its dispatcher ended")
        self._recording.joined()
        self._attempts.reconcile(kept)
        self._attempts.news.call()

    def _hand_out(self):
        if self._stop_at is not None or not self._identity.leased:
            return
        self._pool.take_back()
        for holding in self._pool.hand_out():
            self._attempts.start_before_handing_out(holding)
        self._attempts.hand_back(self._pool.overstock(), "no worker was free")

    def _tell(self, *message):
        try:
            self._control.send(message)
        except Closed:
            self._orphaned = True

    def _end_orphaned(self):
        """The supervisor is dead: nothing of this daemon may go on."""
        journal.supervisor_died()
        descendants.kill_sessions(self._sessions, self._mark)
        return ORPHANED

    # What the supervisor says

    def _on_control(self):
        while True:
            try:
                (kind, *values), descriptors = self._control.receive(wait=False)
            except BlockingIOError:
                return
            except Closed:
                self._orphaned = True
                return
            if kind == "worker":
                self._add_worker(*values, *descriptors)
            elif kind == "died":
                self._remove_worker(*values)
            elif kind == "frozen":
                self._on_frozen(*values)
            elif kind == "thawed":
                self._on_thawed(*values)
            elif kind == "stop":
                self._stop(*values)

    def _add_worker(self, slot, pid, channel, taking, giving):
        channel = Channel.from_descriptor(channel)
        link = Link(slot, pid, channel, Tokens(taking, giving), self._page.ring(slot))
        # What its predecessor said last, and no dispatcher has heard, is of no use any more.
        link.ring.skip()
        self._sessions.add(pid)
        self._pool.add(link)
        self._hearing.add(link)
        # Whoever looks at the daemon's row sees its workers from the start.
        self._timers.now("renew")

    def _remove_worker(self, slot, pid, how, why, running, left=0):
        link = self._pool.links.get(slot)
        if link is None or link.pid != pid:
            return
        self._hearing.remove(link)
        self._pool.remove(slot)
        self._sessions.discard(pid)
        self._attempts.bury(link, running, why or f"its worker {how}", left)
        link.close()

    def _on_frozen(self, slot, pid, instance, attempt, at):
        link = self._pool.links.get(slot)
        if link is not None and link.pid == pid:
            self._attempts.pausing.begun(link, (instance, attempt), at, 0, is_frozen=True)

    def _on_thawed(self, slot, pid, instance, attempt, at):
        link = self._pool.links.get(slot)
        if link is not None and link.pid == pid:
            self._attempts.pausing.ended(link, (instance, attempt), at)

    # Stopping

    def _stop(self, grace):
        """Claim nothing more; give running tasks ``grace`` seconds, then hand them back."""
        at = uptime() + grace
        self._stop_at = at if self._stop_at is None else min(self._stop_at, at)
        self._duty.stop()

    def _ending(self):
        """Go on with stopping; returns the exit status when it is over."""
        if self._stop_at is None:
            if self._options.drain and self._is_drained():
                self._stop(settings.GRACE)
            return None
        over = uptime() - self._stop_at
        if over >= 0 and len(self._pool):
            self._attempts.endings.ask_all(Event.RELEASE, STOPPING)
        if len(self._pool) or len(self._ledger) or self._recorder.busy:
            return self._end(UNDELIVERED) if over > DELIVERY_GRACE else None
        if self._identity.current is None:
            # Without an identity there is nothing to leave; the lease runs out by itself.
            return self._end(DONE)
        if not self._claimer.busy:
            self._recording.leave(self._gone)
        return None

    def _is_drained(self):
        return (
            self._claiming.found_nothing()
            and not len(self._pool)
            and not len(self._ledger)
            and not self._claimer.busy
            and not self._recorder.busy
        )

    def _gone(self, result):
        self._left = True

    def _end(self, status):
        self._attempts.tally.tell_stopped()
        return status

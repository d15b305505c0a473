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

from django.db import InterfaceError, OperationalError

from .. import queue as verbs
from ..conf import settings
from ..exceptions import LeaseLost
from ..registry import registry
from ..states import Event
from ..store import get_store
from ..store.base import RELEASE, Change
from . import journal, processes
from .attempts import Attempts
from .channel import Channel, Closed
from .database import DatabaseThread, bound_connecting
from .identity import Identity
from .ledger import Ledger
from .pool import Link, Pool
from .processes import uptime
from .timers import Timers

# Exit statuses, which the supervisor reads; any other means that it died.
DONE, UNDELIVERED, ORPHANED = 0, 4, 5
# A sign of life to the supervisor this often, in seconds.
ALIVE_EVERY = 1.0
# After a failure of the database the next try waits this long, in seconds.
RETRY_FIRST, RETRY_MOST = 0.1, 1.0
# Beyond its grace a stopping daemon tries this long to deliver its results, in seconds.
DELIVERY_GRACE = 10.0
SUMMARY_EVERY = 60.0
# The loop looks at everything at least this often, in seconds.
MAX_TURN = 0.5


class Dispatcher:
    """One dispatcher process.

    ``control`` is its channel to the supervisor, ``previous`` the identities
    of dispatchers before it that may still hold something.
    """

    def __init__(self, control, page, options, *, lock="", previous=()):
        self._control = control
        self._options = options
        self._supervisor = os.getppid()
        types = options.served(task_type.identifier for task_type in registry)
        self._identity = Identity(self._supervisor, types, lock, list(previous))
        self._store = get_store()
        self._pool = Pool()
        self._ledger = Ledger()
        self._attempts = Attempts(self._pool, self._ledger, page, self._identity, self._tell)
        self._results = queue.SimpleQueue()
        self._waker, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._timers = Timers()
        self._outage = None
        self._pause = RETRY_FIRST
        self._registered = False
        self._stop_at = None
        self._stop_why = ""
        self._left = False
        self._queue_empty = False
        self._orphaned = False
        self._sessions = set()

    # The loop

    def run(self):
        """Run until told to stop; returns the exit status."""
        for end in (self._waker, self._woken):
            end.setblocking(False)
        bound_connecting(settings.STATEMENT_TIMEOUT)
        self._claimer = DatabaseThread("atp-claim", self._results, self._wake)
        self._recorder = DatabaseThread("atp-record", self._results, self._wake)
        self._selector.register(self._control, selectors.EVENT_READ, self._on_control)
        self._selector.register(self._woken, selectors.EVENT_READ, self._on_wake)
        if not self._identity.types:
            journal.nothing_to_serve()
        while True:
            for key, _ in self._selector.select(self._timers.pause(self._pool.pause(MAX_TURN))):
                if key.fileobj.fileno() >= 0:  # a worker before it may have closed it
                    key.data()
            if self._orphaned or os.getppid() != self._supervisor:
                return self._end_orphaned()
            status = self._turn()
            if status is not None:
                return status

    def orphan(self, signum, frame):
        """The kernel's word that the supervisor is dead."""
        self._orphaned = True
        self._wake()

    def _wake(self):
        with contextlib.suppress(BlockingIOError):
            self._waker.send(b"\0")

    def _on_wake(self):
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)

    def _turn(self):
        """Do whatever is due; returns the exit status when all is done."""
        while not self._results.empty():
            thread, result = self._results.get()
            thread.answered()
            self._on_result(result)
        for thread in (self._claimer, self._recorder):
            cut = thread.cut_if_overdue(settings.STATEMENT_TIMEOUT)
            if cut:
                journal.database_slow(doing=cut, seconds=settings.STATEMENT_TIMEOUT)
        if self._timers.due("alive", ALIVE_EVERY):
            self._tell("alive")
        if self._timers.due("summary", SUMMARY_EVERY):
            self._attempts.summarize(SUMMARY_EVERY)
        self._attempts.kill_overdue()
        if self._identity.current is None:
            self._rejoin()
        else:
            self._hand_out()
            self._record()
            self._claim()
        return self._ending()

    def _tell(self, *message):
        try:
            self._control.send(message)
        except Closed:
            self._orphaned = True

    def _end_orphaned(self):
        """The supervisor is dead: nothing of this daemon may go on."""
        journal.supervisor_died()
        processes.kill_sessions(self._sessions)
        return ORPHANED

    # What the supervisor and the workers say

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
                self._add_worker(*values, *map(Channel.from_descriptor, descriptors))
            elif kind == "died":
                self._remove_worker(*values)
            elif kind == "stop":
                self._stop(*values)

    def _add_worker(self, slot, pid, ours, theirs):
        link = Link(slot, pid, ours, theirs)
        self._sessions.add(pid)
        self._pool.add(link)
        # Whoever looks at the daemon's row sees its workers from the start.
        self._timers.now("renew")
        self._selector.register(ours, selectors.EVENT_READ, lambda: self._attempts.collect(link))

    def _remove_worker(self, slot, pid, how, why, running):
        link = self._pool.links.get(slot)
        if link is None or link.pid != pid:
            return
        self._attempts.collect(link)
        self._selector.unregister(link.ours)
        self._pool.remove(slot)
        self._sessions.discard(pid)
        self._attempts.bury(link, running, why or f"its worker {how}")
        link.close()

    # Claiming

    def _hand_out(self):
        if not self._identity.leased or self._stop_at is not None:
            return
        self._pool.take_back()
        for holding in self._pool.hand_out():
            self._attempts.start_before_handing_out(holding)
        self._attempts.hand_back(self._pool.overstock(), "no worker was free")

    def _claim(self):
        if self._claimer.busy or self._identity.current is None:
            return
        if self._stop_at is None and self._identity.leased and self._registered:
            wanted = self._pool.wanted()
            freed = self._attempts.take_freed()
            if wanted and self._identity.types and self._is_time_to_claim(freed):
                self._queue_empty = False
                daemon, types = self._identity.current, self._identity.types
                self._claimer.submit(
                    "claiming",
                    lambda: (wanted, self._store.claim(daemon, types, wanted)),
                    self._claimed,
                )
                return
        self._housekeep()

    def _is_time_to_claim(self, freed):
        """At once when a worker has become free or the last claim was full, else by polling."""
        due = self._timers.due("poll", settings.POLL_EVERY)
        return due or freed or self._attempts.more_waits

    def _claimed(self, result):
        wanted, claimed = result.value
        self._attempts.more_waits = len(claimed) >= wanted
        self._queue_empty = not claimed
        if claimed:
            journal.claimed(count=len(claimed))
            self._pool.put(claimed)
            if self._stop_at is not None:
                self._attempts.hand_back_waiting("the daemon is stopping")

    def _housekeep(self):
        """Sweep and purge, when they are due and nothing is to be claimed."""
        daemon = self._identity.current
        if self._identity.may_sweep and self._timers.due("sweep", settings.SWEEP_EVERY):
            self._claimer.submit("sweeping", lambda: self._store.sweep(daemon=daemon), self._swept)
        elif self._timers.due("purge", settings.PURGE_EVERY):
            self._claimer.submit("purging", self._store.purge, self._purged)

    def _swept(self, result):
        swept = result.value
        if swept.daemons or swept.expired:
            names = ", ".join(swept.daemons) or "one with many Tasks"
            journal.daemons_lost(daemons=names, expired=swept.expired)
            self._attempts.more_waits = True
        if swept.missed:
            journal.missed(count=swept.missed)

    def _purged(self, result):
        if result.value:
            journal.purged(count=result.value)
            self._timers.now("purge")

    # Recording

    def _record(self):
        """Renew when it is time, else write what has happened, else see what is asked."""
        if self._recorder.busy:
            return
        daemon = self._identity.current
        if self._timers.due("renew", settings.RENEW_EVERY):
            workers, idle = self._attempts.workers(), not len(self._pool)
            self._recorder.submit(
                "renewing the lease",
                lambda: self._store.renew(daemon, lease=settings.LEASE, workers=workers, idle=idle),
                self._renewed,
            )
        elif not self._registered:
            self._recorder.submit("registering Types", self._register, self._types_registered)
        elif batch := self._ledger.take():
            write = self._store.record if isinstance(batch[0], Change) else self._store.note
            self._recorder.submit(
                "recording", lambda: (batch, write(batch, daemon=daemon)), self._recorded
            )
        elif len(self._pool) and self._timers.due("asked", settings.POLL_EVERY):
            self._recorder.submit(
                "reading requests", lambda: self._store.asked(daemon), self._asked
            )

    def _register(self):
        verbs.register(
            *(t for t in registry if t.identifier in self._identity.types),
            by=self._identity.name,
        )

    def _types_registered(self, result):
        self._registered = True

    def _renewed(self, result):
        self._identity.renewed(result.value.time, result.sent, result.received)
        self._tell("lease", self._identity.lease_until)

    def _recorded(self, result):
        batch, refused = result.value
        self._ledger.acknowledge()
        self._attempts.recorded(batch, refused)

    def _asked(self, result):
        for asked in result.value:
            if asked.request == RELEASE:
                self._attempts.ask(asked.instance, asked.attempt, Event.RELEASE)

    # When the database fails

    def _on_result(self, result):
        if result.error is None:
            self._pause = RETRY_FIRST
            if self._outage is not None and self._identity.current is not None:
                journal.database_back(seconds=uptime() - self._outage)
                self._outage = None
            result.then(result)
        elif isinstance(result.error, LeaseLost):
            journal.lease_lost(why=result.error)
            self._lose_identity()
        elif _is_outage(result.error) or result.doing != "recording":
            if self._outage is None:
                # What is not the database's fault is told with its traceback.
                trace = None if _is_outage(result.error) else result.error
                journal.database_failed(
                    doing=result.doing, error=_words(result.error), exc_info=trace
                )
                self._outage = uptime()
            self._timers.later("rejoin", self._pause)
            self._pause = min(self._pause * 2, RETRY_MOST)
            self._lose_identity()
        else:
            self._ledger.give_back()
            self._attempts.isolate(result.error)

    def _lose_identity(self):
        self._ledger.give_back()
        self._identity.lose()

    def _rejoin(self):
        """Take a new identity, when nothing is on its way under the old one from here."""
        if self._claimer.busy or self._recorder.busy or not self._timers.passed("rejoin"):
            return
        candidate = self._identity.propose()
        self._tell("identity", candidate)
        holding = [h.key for h in self._pool.holdings()] + list(self._ledger.keys())
        self._recorder.submit(
            "joining", lambda: self._identity.join(self._store, holding), self._joined
        )

    def _joined(self, result):
        answer, expired = result.value
        first = not self._identity.previous
        self._identity.joined(answer, result.sent, result.received)
        self._tell("joined", self._identity.current)
        self._tell("lease", self._identity.lease_until)
        self._timers.later("renew", settings.RENEW_EVERY)
        self._timers.now("poll")
        if first:
            journal.joined(daemon=self._identity.current)
        else:
            journal.rejoined(daemon=self._identity.current, kept=len(answer.kept), expired=expired)
        self._attempts.reconcile(answer.kept)
        if self._outage is not None:
            journal.database_back(seconds=uptime() - self._outage)
            self._outage = None

    # Stopping

    def _stop(self, grace, why):
        """Claim nothing more; give running tasks ``grace`` seconds, then hand them back."""
        self._stop_why = why
        now = uptime()
        self._stop_at = now + grace if self._stop_at is None else min(self._stop_at, now + grace)
        self._attempts.hand_back_waiting("the daemon is stopping")
        for link in self._pool.links.values():
            self._attempts.hand_back(self._pool.unread(link), "the daemon is stopping")

    def _ending(self):
        """Go on with stopping; returns the exit status when it is over."""
        if self._stop_at is None:
            if self._is_drained():
                self._stop(settings.GRACE, "drained")
            return None
        over = uptime() - self._stop_at
        if over >= 0 and len(self._pool):
            self._attempts.ask_all(Event.RELEASE, "the daemon is stopping")
        if not len(self._pool) and not len(self._ledger) and not self._recorder.busy:
            if self._left or self._identity.current is None:
                # Without an identity there is nothing to leave; the lease runs out by itself.
                return self._end(DONE)
            if not self._claimer.busy:
                daemon = self._identity.current
                self._recorder.submit("leaving", lambda: self._store.leave(daemon), self._gone)
        elif over > DELIVERY_GRACE:
            return self._end(UNDELIVERED)
        return None

    def _is_drained(self):
        return (
            self._options.drain
            and (self._queue_empty or not self._identity.types)
            and not self._attempts.more_waits
            and not len(self._pool)
            and not len(self._ledger)
            and not self._claimer.busy
            and not self._recorder.busy
        )

    def _gone(self, result):
        self._left = True

    def _end(self, status):
        self._attempts.tell_stopped()
        return status


def _is_outage(error):
    return isinstance(error, (OperationalError, InterfaceError, OSError))


def _words(error):
    return " ".join(str(error).split()) or type(error).__name__

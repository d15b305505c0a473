"""The dispatcher: the one process of a daemon that talks to the queue.

Its event loop serves channels and timers, and never waits for the database. Claiming,
recording and purging run in threads, each with a connection of its own.
The cycle: claim → hand out → collect → record.
"""

import contextlib
import os
import queue
import selectors
import socket

from ...conf import settings
from ...operations.registry import registry
from ...store import get_store
from .. import journal
from ..chores import table
from ..chores.chore import Chores, run_due
from ..membership.identity import Identity
from ..membership.membership import Membership
from ..membership.orders import Orders
from ..membership.reconciling import Reconciling
from ..membership.renewal import Renewal
from ..pool.attempts import Attempts
from ..pool.misfits import Misfits
from ..pool.pool import Pool
from ..pool.reader import Reader
from ..pool.stuck_workers import StuckWorkers
from ..shared import messages
from ..system import processes
from ..system.database import as_stores_expect, bound_connecting
from . import orphaned
from .claiming import Claiming
from .core import Core
from .database_thread import DatabaseThread
from .intake import Intake
from .recording import Recording
from .stopping import DONE, ORPHANED, Stopping
from .supervisor_link import SupervisorLink
from .unrecordable import Unrecordable
from .unrecorded import LINGER
from .wakeups import Wakeups
from .worker_changes import WorkerChanges

# The loop looks at everything at least this often, in seconds.
MAX_TURN = 0.5


class Dispatcher:
    """One dispatcher process. ``control`` is its channel to the supervisor."""

    def __init__(self, control, inherited, predecessor):
        self._supervisor = SupervisorLink(control)
        self._inherited = inherited
        self._options = inherited.options
        self._request = predecessor.request
        self._parent = os.getppid()
        types = self._options.served(registry)
        lock = inherited.folders.lock
        self._identity = Identity(self._parent, types, lock, list(predecessor.identities))
        self._results = queue.SimpleQueue()
        self._handed = queue.SimpleQueue()
        self._waker, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._rang = False

    def _furnish(self):
        """Make the parts of the dispatcher. Call this after the fork, since it starts threads."""
        bound_connecting(settings.STATEMENT_TIMEOUT)
        as_stores_expect()
        processes.allow_descriptors(6 * self._options.processes + 64)
        identity, store = self._identity, get_store()
        self._core = core = Core(
            store=store,
            identity=identity,
            page=self._inherited.page,
            tell=self._supervisor.tell,
            pool=Pool(filter(registry.is_transactional, identity.types)),
            # A daemon that drains leaves no Type to others.
            misfits=Misfits(leaves=not self._options.drain),
        )
        self._pool, self._timers, self._unrecorded = core.pool, core.timers, core.unrecorded
        self._claimer, self._recorder, self._purger = self._threads = [
            DatabaseThread(name, store, self._results, self._wake)
            for name in ("atp-claim", "atp-record", "atp-purge")
        ]
        self._wakeups = Wakeups(store, self._ring, self._hand)
        self._attempts = attempts = Attempts(core, self._options.processes)
        self._reader = Reader(core, attempts)
        self._orders = orders = Orders(core, attempts, self._request)
        self._intake = Intake(self._selector, core.unrecorded, self._reader)
        self._workers = WorkerChanges(core, attempts, self._intake)
        self._stuck_workers = StuckWorkers(core.pool, core.page, attempts.ending.kill)

        def chores(thread, entries):
            return Chores(thread, made(entries))

        def made(entries):
            return [entry(core, attempts, orders) for entry in entries]

        self._own_chores = made(table.ON_THE_LOOP)

        self._claiming = Claiming(
            core, self._claimer, attempts, chores(self._claimer, table.CLAIMING)
        )
        self._renewal = Renewal(core, attempts, self._claiming, self._wakeups, orders)
        self._recording = Recording(
            core, self._recorder, attempts, self._renewal, chores(self._recorder, table.RECORDING)
        )
        self._purging = chores(self._purger, table.PURGING)
        self._unrecordable = Unrecordable(core)
        threads = (self._claimer, self._recorder)
        self._membership = Membership(core, threads, orders)
        self._reconciling = Reconciling(core, attempts, self._renewal, orders)
        self._stopping = Stopping(core, threads, attempts, orders, self._recording)
        self._on_message = {messages.Stop: self._stopping.stop, **self._workers.on_message}

    # The loop

    def run(self):
        """Run until the daemon stops or the supervisor is dead; return the exit status."""
        for end in (self._waker, self._woken):
            end.setblocking(False)
        self._furnish()
        self._selector.register(self._supervisor.channel, selectors.EVENT_READ, self._on_control)
        self._selector.register(self._woken, selectors.EVENT_READ, self._on_wake)
        if not self._identity.types:
            journal.nothing_to_serve()
        while True:
            for key, _ in self._selector.select(self._pause()):
                if key.fileobj.fileno() >= 0:  # an earlier callback may have closed it
                    key.data()
            if self._supervisor.is_lost or os.getppid() != self._parent:
                mark = self._inherited.folders.mark
                orphaned.end(self._identity, self._workers.sessions, mark)
                return ORPHANED
            status = self._turn()
            if status is not None:
                self._core.counters.tell_stopped()
                return status

    def _pause(self):
        """Return the time until the next turn, in seconds, if no message comes before."""
        longest = LINGER if self._unrecorded.waits and not self._recorder.busy else MAX_TURN
        longest = self._core.downstreams.pause(longest)
        return self._timers.pause(self._attempts.ending.pause(self._pool.pause(longest)))

    def orphan(self, signum, frame):
        """Handle the kernel's signal that the supervisor is dead."""
        self._supervisor.is_lost = True
        self._wake()

    def _wake(self):
        with contextlib.suppress(BlockingIOError):
            self._waker.send(b"\0")

    def _ring(self):
        """Note that a Task may wait in the queue. The thread of the wakeups calls this."""
        self._rang = True
        self._wake()

    def _hand(self, daemon, claimed):
        """Pass on a Task that an enqueue handed to this daemon. The wakeups' thread calls this."""
        self._handed.put((daemon, claimed))
        self._wake()

    def _on_wake(self):
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)

    def _on_control(self):
        for message, descriptors in self._supervisor.receive():
            self._on_message[type(message)](*message, *descriptors)

    def _turn(self):
        """Do the work that is due; return the exit status when the daemon is done, else None."""
        while not self._results.empty():
            thread, result = self._results.get()
            thread.answered()
            self._on_result(result)
        if self._stopping.has_left:
            return DONE
        self._take_handed()
        if self._rang:
            self._rang = False
            self._core.queue.call()
        # Listen only while idle: a daemon at work claims anyway, and would hear its own writes.
        self._wakeups.listen(self._claiming.is_idle(), may_be_handed=self._renewal.may_be_handed())
        for thread in self._threads:
            thread.cut_if_overdue(settings.STATEMENT_TIMEOUT)
        run_due(self._own_chores)
        self._attempts.ending.kill_overdue()
        self._attempts.pausing.turn()
        self._intake.turn()
        self._stuck_workers.turn()
        for link in self._pool.links.values():
            if link.assigned:
                self._reader.look(link)
        if self._identity.current is not None:
            self._work()
        elif not self._claimer.busy and not self._recorder.busy:
            # No call under the old identity is on its way any more.
            self._membership.rejoin(self._reconciling.joined)
        found_nothing = self._options.drain and self._claiming.found_nothing()
        if not self._stopping.is_stopping and self._stopping.is_drained(found_nothing):
            self._stopping.stop(settings.GRACE)
            return None
        return self._stopping.turn()

    def _work(self):
        """Do the work that needs an identity: hand out, settle, record, claim and purge."""
        self._orders.keep()
        self._hand_out()
        if not self._recorder.busy:
            self._membership.settle(self._reconciling.settled)
        self._recording.turn()
        is_ready = self._identity.is_registered and not self._intake.is_behind
        self._claiming.turn(not self._attempts.stopping and is_ready)
        self._purging.turn()

    def _hand_out(self):
        if not self._stopping.is_stopping and self._identity.leased:
            self._attempts.hand_out()

    def _take_handed(self):
        while not self._handed.empty():
            daemon, claimed = self._handed.get()
            # The Tasks of an earlier identity were settled when this one joined.
            if daemon == self._identity.current:
                self._renewal.handed()
                self._claiming.handed(claimed)
                self._hand_out()
        if self._renewal.may_have_missed_handing():
            journal.channel_lost()
            self._identity.lose()

    def _on_result(self, result):
        if result.error is None:
            self._membership.answered(result)
            result.then(result)
        elif result.failed is not None:
            result.failed(result)
        elif result.is_locked:
            self._core.caution.met(result.doing)
            for part in (self._recording, self._renewal, self._claiming, self._membership):
                part.locked(result)
        elif not self._unrecordable.can_isolate(result):
            self._recording.failed(result)
            self._membership.failed(result)

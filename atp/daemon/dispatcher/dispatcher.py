"""The dispatcher: its event loop, and the parts that meet there."""

import contextlib
import os
import queue
import selectors
import socket
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

from ...conf import settings
from ...operations.registry import registry
from ...store import get_store
from .. import log, processes, protocol
from ..database import DatabaseThread, Result, Results, as_stores_expect, bound_connecting
from ..processes import uptime
from ..protocol import Channel, Closed, Inherited, Predecessor
from ..shared_memory import Running
from . import commands, jobs
from .attempts import Attempts
from .capacity import Capacity, EngineCapacity
from .claiming import Claiming, HandOver, Wakeups
from .commands import DONE, ORPHANED, DaemonCommands, Stopping
from .core import Core
from .lease import Identity, Membership, Reconciling, Renewal
from .maintenance import Job, Jobs, run_due
from .pool import Pool, WorkerLink
from .reader import Misfits, Reader
from .recording import LINGER, Recording, Unrecordable, UnrecordedChanges
from .workers import StuckWorkers, WorkerChanges

# The dispatcher: the one process of a daemon that talks to the queue.
#
# Its event loop serves channels and timers, and never waits for the database. Claiming,
# recording and purging run in threads, each with a connection of its own.
# The cycle: claim → hand out → collect → record.

# The loop looks at everything at least this often, in seconds.
MAX_TURN = 0.5


class Dispatcher:
    """One dispatcher process. ``control`` is its channel to the supervisor."""

    def __init__(self, control: Channel, inherited: Inherited, predecessor: Predecessor) -> None:
        self._supervisor = SupervisorLink(control)
        self._inherited = inherited
        self._options = inherited.options
        self._request = predecessor.request
        self._parent = os.getppid()
        types = self._options.served(registry)
        lock = inherited.folders.lock
        self._identity = Identity(
            self._parent,
            types,
            lock,
            labels=self._options.labels,
            capacity=self._options.capacity,
            previous=list(predecessor.identities),
        )
        self._results: Results = queue.SimpleQueue()
        self._waker, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._rang = False
        # When there was something to do last.
        self._busy_at = uptime()

    def _furnish(self) -> None:
        """Make the parts of the dispatcher. Call this after the fork, since it starts threads."""
        bound_connecting(settings.STATEMENT_TIMEOUT)
        as_stores_expect()
        processes.allow_descriptors(self._options.descriptors(registry))
        identity, store = self._identity, get_store()
        concurrency = self._options.concurrency(registry)
        pool = Pool(filter(registry.is_transactional, identity.types), concurrency)
        costs = self._options.costs(registry)
        self._core = core = Core(
            store=store,
            identity=identity,
            page=self._inherited.page,
            tell=self._supervisor.tell,
            pool=pool,
            capacity=EngineCapacity(costs, pool)
            if self._options.executor
            else Capacity(self._options.capacity, costs, pool),
            # A daemon that drains leaves no Type to others.
            misfits=Misfits(leaves=not self._options.drain),
        )
        self._pool, self._timers, self._unrecorded = core.pool, core.timers, core.unrecorded
        self._claimer, self._recorder, self._purger = self._threads = [
            DatabaseThread(name, store, self._results, self._wake, keep)
            for name, keep in (("atp-claim", None), ("atp-record", None), ("atp-purge", jobs.KEEP))
        ]
        self._wakeups = Wakeups(store, self._ring, self._wake)
        self._hand_over = HandOver(identity, self._wakeups)
        self._attempts = attempts = Attempts(core, self._options.processes)
        self._reader = Reader(core, attempts)
        self._daemon_commands = daemon_commands = DaemonCommands(core, attempts, self._request)
        self._intake = Intake(self._selector, core.unrecorded, self._reader)
        self._workers = WorkerChanges(core, attempts, self._intake)
        self._stuck_workers = StuckWorkers(core.pool, core.page, attempts.ending.kill)

        def turns_of(thread: DatabaseThread, entries: Iterable[type[Job]]) -> Jobs:
            return Jobs(thread, made(entries))

        def made(entries: Iterable[type[Job]]) -> list[Job]:
            return [entry(core, attempts, daemon_commands) for entry in entries]

        self._own_jobs = made(jobs.ON_THE_LOOP)

        self._claiming = Claiming(
            core, self._claimer, attempts, turns_of(self._claimer, jobs.CLAIMING)
        )
        self._renewal = Renewal(core, attempts, self._claiming, self._hand_over, daemon_commands)
        self._recording = Recording(
            core, self._recorder, attempts, self._renewal, turns_of(self._recorder, jobs.RECORDING)
        )
        self._purging = turns_of(self._purger, jobs.BESIDE)
        self._unrecordable = Unrecordable(core)
        threads = (self._claimer, self._recorder)
        self._membership = Membership(core, threads, daemon_commands)
        self._reconciling = Reconciling(core, attempts, self._renewal, daemon_commands)
        self._stopping = Stopping(core, threads, attempts, daemon_commands, self._recording)
        self._on_message: dict[type, Callable[..., None]] = {
            protocol.Stop: self._stopping.stop,
            **self._workers.on_message,
        }

    # The loop

    def run(self) -> int:
        """Run until the daemon stops or the supervisor is dead; return the exit status."""
        for end in (self._waker, self._woken):
            end.setblocking(False)
        self._furnish()
        self._selector.register(self._supervisor.channel, selectors.EVENT_READ, self._on_control)
        self._selector.register(self._woken, selectors.EVENT_READ, self._on_wake)
        if not self._identity.types:
            log.nothing_to_serve()
        while True:
            for key, _ in self._selector.select(self._pause()):
                # An earlier callback may have closed it.
                if key.fileobj.fileno() >= 0:  # type: ignore[union-attr]
                    key.data()
            if self._supervisor.is_lost or os.getppid() != self._parent:
                mark = self._inherited.folders.mark
                commands.end(self._identity, self._workers.sessions, mark)
                return ORPHANED
            status = self._turn()
            if status is not None:
                self._core.counters.tell_stopped()
                return status

    def _pause(self) -> float:
        """Return the time until the next turn, in seconds, if no message comes before."""
        longest = LINGER if self._unrecorded.waits and not self._recorder.busy else MAX_TURN
        longest = self._core.downstreams.pause(longest)
        return self._timers.pause(self._attempts.ending.pause(self._pool.pause(longest)))

    def orphan(self, signum: int, frame: FrameType | None) -> None:
        """Handle the kernel's signal that the supervisor is dead."""
        self._supervisor.is_lost = True
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._waker.send(b"\0")

    def _ring(self) -> None:
        """Note that a Task may wait in the queue. The thread of the wakeups calls this."""
        self._rang = True
        self._wake()

    def _on_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)

    def _on_control(self) -> None:
        for message, descriptors in self._supervisor.receive():
            self._on_message[type(message)](*message, *descriptors)

    def _turn(self) -> int | None:
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
        self._wakeups.listen(self._claiming.is_listening(), may_be_handed=self._hand_over.is_open)
        for thread in self._threads:
            thread.cut_if_overdue(settings.STATEMENT_TIMEOUT)
        run_due(self._own_jobs)
        self._attempts.ending.kill_overdue()
        self._attempts.pausing.turn()
        self._intake.turn()
        self._pool.look_at_loops(self._core.page)
        self._stuck_workers.turn()
        for link in self._pool.links.values():
            if link.assigned:
                self._reader.look(link)
        if self._identity.current is not None:
            self._work()
        elif not self._claimer.busy and not self._recorder.busy:
            # No call under the old identity is on its way any more.
            self._membership.rejoin(self._reconciling.joined)
        if self._options.drain and not self._stopping.is_stopping and self._has_lingered():
            self._stopping.stop(settings.GRACE)
            return None
        return self._stopping.turn()

    def _has_lingered(self) -> bool:
        """Tell whether there has been nothing to do for as long as the daemon lingers."""
        if not self._claiming.has_drained() or len(self._pool):
            self._busy_at = uptime()
            return False
        return uptime() - self._busy_at >= self._options.linger and self._stopping.is_drained()

    def _work(self) -> None:
        """Do the work that needs an identity: hand out, settle, record, claim and purge."""
        self._daemon_commands.keep()
        self._hand_out()
        if not self._recorder.busy:
            self._membership.settle(self._reconciling.settled)
        self._recording.turn()
        is_ready = self._identity.is_registered and not self._intake.is_behind
        self._claiming.turn(not self._attempts.stopping and is_ready)
        self._purging.turn()

    def _hand_out(self) -> None:
        if not self._stopping.is_stopping and self._identity.leased:
            self._attempts.hand_out()

    def _take_handed(self) -> None:
        for attempt in self._hand_over.take():
            self._renewal.handed()
            self._claiming.handed(attempt)
            self._hand_out()
        if self._hand_over.has_lost_channel:
            log.channel_lost()
            self._identity.lose()

    def _on_result(self, result: Result[Any]) -> None:
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


# The intake of the workers' messages, as long as the database can record them.
#
# Handlers may send messages faster than the database writes them, above all if it is slow or
# down. If too many entries wait to be recorded, the dispatcher stops reading messages until
# fewer do. The messages wait in the workers' channels, and in the end the workers wait too.
#
# Entries that wait for a lock of another session concern their own attempt alone: if it has too
# many, only its worker's messages wait.

# The number of waiting Moves and Notes at which the intake stops, and at which it resumes.
MOST, AGAIN = 5000, 2500
# The number of entries of one attempt behind a lock at which its worker's messages wait.
MOST_ASIDE = 1000


class Intake:
    """The intake from the workers' channels and rings. ``is_behind``: it reads none of them."""

    def __init__(
        self, selector: selectors.BaseSelector, unrecorded: UnrecordedChanges, reader: Reader
    ) -> None:
        self._selector = selector
        self._unrecorded = unrecorded
        self._reader = reader
        self._links: set[WorkerLink] = set()
        # The links whose channels the selector watches.
        self._heard: set[WorkerLink] = set()
        self.is_behind = False

    def add(self, link: WorkerLink) -> None:
        """Read the messages of this worker from now on."""
        self._links.add(link)
        self._hear(link, not self.is_behind)

    def remove(self, link: WorkerLink, running: Running | None) -> None:
        """Read the last messages of a dead worker, and stop listening to it.

        ``running`` is the attempt that it ran when it died, or None.
        """
        if running is not None:
            self._reader.saw(link, running)
        self._reader.collect(link)
        self._links.discard(link)
        self._hear(link, False)

    def turn(self) -> None:
        """Read the rings of the workers, unless too many entries wait to be recorded."""
        pending = self._unrecorded.pending
        self.is_behind = pending > AGAIN if self.is_behind else pending >= MOST
        full = self._unrecorded.overfull(MOST_ASIDE) if self._unrecorded.has_aside else ()
        news = {}
        for link in self._links:
            # Once its attempt has ended, the end may be behind its messages.
            is_full = full and self._reader.running(link) in full
            self._hear(link, not (self.is_behind or is_full or link.channel.has_ended))
            if link.ring.has_news and not self.is_behind:
                news[link] = link.ring.written
        if news:
            self._reader.collect_ends(news, self._have_told(news))

    def _have_told(self, links: Iterable[WorkerLink]) -> set[WorkerLink]:
        """Return the workers whose channels may have messages.

        One call asks for all of them: most end their attempts without a message.
        """
        ready = {key.fileobj for key, _ in self._selector.select(0)}
        return {link for link in links if link.channel in ready or link not in self._heard}

    def _hear(self, link: WorkerLink, wanted: bool) -> None:
        if wanted and link not in self._heard:
            self._heard.add(link)
            take_in = self._take_in
            self._selector.register(link.channel, selectors.EVENT_READ, lambda: take_in(link))
        elif not wanted and link in self._heard:
            self._heard.discard(link)
            self._selector.unregister(link.channel)

    def _take_in(self, link: WorkerLink) -> None:
        link.is_stuck = False
        self._reader.collect(link)
        if link.channel.has_ended:
            # The worker is dead, or its handler has closed this: the selector would call for ever.
            self._hear(link, False)


# The dispatcher's channel to its supervisor.


class SupervisorLink:
    """The channel to the supervisor. ``is_lost`` says that the supervisor is dead."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.is_lost = False

    def tell(self, message: Any) -> None:
        """Send a message to the supervisor."""
        try:
            self.channel.send(message)
        except Closed:
            self.is_lost = True

    def receive(self) -> Iterator[tuple[Any, list[int]]]:
        """Yield each message that has come, with the descriptors that it passes."""
        while True:
            try:
                yield self.channel.receive(wait=False)
            except BlockingIOError:
                return
            except Closed:
                self.is_lost = True
                return

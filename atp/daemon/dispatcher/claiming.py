"""When the daemon claims, and how much; what wakes it."""

import threading
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from ... import messages
from ...conf import settings
from ...store.common.turns import ClaimMemory
from ...store.values import Attempt
from .. import log
from ..database import DatabaseThread, Result, shut_down
from ..processes import uptime
from .attempts import Attempts
from .lease import Identity
from .maintenance import Jobs
from .pool import Pool, Room
from .recording import BATCH

if TYPE_CHECKING:
    from ...store.protocol import Listener, Store
    from .core import Core

# Caution: for a while, calls look for locks of other sessions before they write.

# After a call has met a lock of another session, calls are careful for this many seconds. Then
# a claim, and the recording of a batch, take some more statements.
CAREFUL_FOR = 5.0


class Caution:
    """The decision whether calls to the store have to be careful now."""

    def __init__(self) -> None:
        self._until = 0.0

    def met(self, doing: str) -> None:
        """Note that a call has met a lock of another session; ``doing`` names the call."""
        if not self.is_advised:
            log.lock_met(doing=doing)
        self._until = uptime() + CAREFUL_FOR

    @property
    def is_advised(self) -> bool:
        """Whether a call has met a lock within the last CAREFUL_FOR seconds."""
        return uptime() < self._until


# Claiming: deciding when to claim Tasks, and how many.

CLAIMING = "claiming"
NO_ROOM = (Room(0, 0), Room(0, 0))
# The pause after a claim that found nothing, in seconds; it doubles each time.
FIRST_WAIT = 0.01


class Claiming:
    """The user of the claiming thread. Every call in it is a claim or one of the ``jobs``."""

    def __init__(
        self, core: "Core", thread: DatabaseThread, attempts: Attempts, jobs: Jobs
    ) -> None:
        self._core = core
        self._thread = thread
        self._identity: Identity = core.identity
        self._pool: Pool = core.pool
        self._queue = core.queue
        self._attempts = attempts
        self._jobs = jobs
        self._wait = FIRST_WAIT
        self._put_backs_at_wait: int | None = None
        # The sides (loops or not) for which the last claim may have left due Tasks behind.
        self._waits: set[bool] = set()
        # When jobs come before claims, and whether one has come since the last claim.
        self._jobs_first_at, self._did_job = _after_a_rest(), False

    def turn(self, claims: bool) -> None:
        """Start the next call if the thread is free; only a job if ``claims`` is false.

        While there is always something to claim, claims and jobs that are due take turns, as
        soon as no job was looked for during the shortest interval of a job.
        """
        if self._thread.busy:
            return
        if uptime() >= self._jobs_first_at and not self._did_job and self._job():
            return
        rooms = self._rooms() if claims and self._identity.leased else NO_ROOM
        if self._identity.types and any(room.limit for room in rooms):
            self._did_job = False
            self._claim(*rooms)
        else:
            self._job()

    def _job(self) -> bool:
        """Start the next job that is due; return whether there is one."""
        self._did_job = self._jobs.turn()
        if not self._did_job:
            self._jobs_first_at = _after_a_rest()
        return self._did_job

    def _rooms(self) -> tuple[Room, Room]:
        """Return how many Tasks to claim now, for processes and for loops."""
        if not self._pool.is_low():
            return NO_ROOM
        behind = max(0, self._core.unrecorded.pending - BATCH)
        processes, loops = self._pool.room(behind)
        bounded = self._core.capacity.bounded
        processes = Room(bounded(processes.limit), bounded(processes.free))
        return self._due(processes, loops=False), self._due(loops, loops=True)

    def _due(self, room: Room, *, loops: bool) -> Room:
        """Return the room of a side if it is time to look for its Tasks, else no room.

        That is if a worker of it has become free, or a Task is due or may be due.
        """
        if not room.limit or not self._serves(loops=loops):
            return NO_ROOM[0]
        freed = self._queue.take_freed(loops=loops)
        is_time = freed or self._queue.is_due or self._queue.more_waits or loops in self._waits
        return room if is_time else NO_ROOM[0]

    def _serves(self, *, loops: bool) -> bool:
        """Tell whether this daemon serves Types of a side."""
        concurrency = self._pool.concurrency
        if not concurrency:
            return not loops
        return any((type in concurrency) == loops for type in self._identity.types)

    def _claim(self, processes: Room, loops: Room) -> None:
        core, queue = self._core, self._queue
        daemon, types = self._identity.holder, core.misfits.claimable(self._identity.types)
        types = core.downstreams.claimable(types)
        put_backs, calls = queue.put_backs, queue.calls
        began = uptime()
        # If none was due, claim one Task, which starts at once; the next claim takes those that
        # came with it.
        if queue.is_empty():
            processes = processes._replace(limit=min(1, processes.limit))
        if queue.is_empty(loops=True):
            loops = loops._replace(limit=min(1, loops.limit))
        for side, room in ((False, processes), (True, loops)):
            if room.limit:
                queue.forget_empty(loops=side)
        if queue.is_due:
            queue.due_at = None
        careful = core.caution.is_advised

        def claim_of(
            types: Sequence[str], limit: int, free: int, memory: ClaimMemory
        ) -> list[Attempt]:
            claims = core.store.claims
            return claims.claim(daemon, types, limit, free=free, careful=careful, memory=memory)

        claim_all = core.capacity.claims(types, processes, loops, core.memory, claim_of)

        def claim() -> tuple[list[Attempt], int]:
            claimed = claim_all()
            # Tasks past their start_before hide the due ones behind them.
            missed = 0 if claimed else core.store.claims.miss(who=self._identity.name)
            return claimed, missed

        def claimed(result: Result[tuple[list[Attempt], int]]) -> None:
            tasks, missed = result.value
            if missed:
                core.counters.missed(missed)
            # This claim may not have seen the Tasks that came into the queue meanwhile.
            was_called = queue.calls != calls
            queue.more_waits = bool(missed) or was_called
            looked = core.capacity.looked
            full = looked & core.capacity.full
            if not self._pool.concurrency and len(tasks) >= processes.limit:
                full = looked
            self._waits = (self._waits - looked) | full
            if not queue.more_waits:
                for side in looked - full:
                    queue.found_empty(put_backs, loops=side)
            if not tasks:
                self._wait_longer(put_backs)
            else:
                self._wait = FIRST_WAIT
                self._pool.claim_took(uptime() - began)
                self._take(tasks)

        self._thread.submit(CLAIMING, claim, claimed)

    def _wait_longer(self, put_backs: int) -> None:
        if put_backs != self._put_backs_at_wait:
            # Start with a short wait again: a place under a limit may be free soon.
            self._wait, self._put_backs_at_wait = FIRST_WAIT, put_backs
        self._core.timers.later("outlook", self._wait)
        self._wait = min(2 * self._wait, settings.POLL_EVERY)

    def locked(self, result: Result[Any]) -> None:
        """Claim again, carefully, after a claim met another session's lock and took nothing."""
        if result.doing == CLAIMING:
            self._queue.more_waits = True

    def _take(self, tasks: Sequence[Attempt]) -> None:
        log.claimed(count=len(tasks))
        self._attempts.limited.add(tasks)
        admitted, surplus = self._core.capacity.admit(tasks)
        self._pool.put(admitted)
        self._attempts.hand_back(surplus, messages.no_room())
        for name, gone in self._core.downstreams.too_early(self._pool):
            self._attempts.hand_back(gone, messages.downstream_takes_no_more(name))
        if self._attempts.stopping:
            self._attempts.hand_back_unstarted(self._attempts.stopping)

    def handed(self, task: Attempt) -> None:
        """Take a Task that an enqueue has handed to this daemon, which was idle then."""
        has_free = self._pool.has_free(task)
        self._take([task])
        if not has_free and not self._attempts.stopping:
            # Hand this Task back, since other daemons may be idle; keep the claimed ones. It may
            # have been handed back already, as the state of its downstream forbids it.
            waiting = self._pool.take_waiting(task.key)
            if waiting is not None:
                self._attempts.hand_back([waiting], messages.no_worker_free())

    @property
    def is_claiming(self) -> bool:
        """Whether a claim is on its way: this daemon will hold its Tasks, wanted or not."""
        return self._thread.doing == CLAIMING

    def found_nothing(self) -> bool:
        """Tell whether the last look found no due Task, and none was put back since."""
        if not self._identity.types:
            return True
        sides = [side for side in (False, True) if self._serves(loops=side)]
        return all(self._queue.is_empty(loops=side) for side in sides)

    def has_drained(self) -> bool:
        """Tell whether the last look found no due Task, though there was room for any."""
        return self.found_nothing() and not self._core.capacity.is_short

    def is_listening(self) -> bool:
        """Tell whether some worker would start a new Task at once, if it is of its Types."""
        if not self._pool.concurrency:
            return self.is_idle()
        if self._attempts.stopping or not self._core.capacity.has_room:
            return False
        return any(
            self._queue.is_empty(loops=side) and self._pool.side(loops=side).has_free()
            for side in (False, True)
        )

    def is_idle(self) -> bool:
        """Tell whether a worker would start a new Task at once, of whatever Type it is."""
        has_room = self._pool.is_idle() and self._core.capacity.has_room
        return self.found_nothing() and has_room and not self._attempts.stopping


def _after_a_rest() -> float:
    """Return when jobs are to be looked for again, even if there is always something to claim."""
    return uptime() + min(settings.POLL_EVERY, settings.SWEEP_EVERY)


# Wakeups from the database, which say that a Task may wait in the queue.

# The longest single wait of a listener, in seconds.
PIECE = 5.0


class Wakeups:
    """A thread that waits for wakeups with the store's listener, and calls ``rung()`` after each.

    A wakeup is only a hint: the daemon polls the queue all the same. But if an enqueue hands over a
    Task, only this thread learns of it: it puts the daemon's uuid and the attempt into ``handed``,
    and calls ``wake()``.
    """

    def __init__(self, store: "Store", rung: Callable[[], None], wake: Callable[[], None]) -> None:
        self._store = store
        self._rung = rung
        self._wake = wake
        self.handed: SimpleQueue[tuple[UUID, Attempt]] = SimpleQueue()
        # The channel through which Tasks can be handed over. When it is lost, this is empty or
        # the name of another channel.
        self.channel = ""
        self._listener: Any = None
        self._since: float | None = None
        self._missed = False
        self._is_deaf = False
        self._rings = False
        self._wanted = threading.Event()
        threading.Thread(target=self._run, name="atp-listen", daemon=True).start()

    def listen(self, rings: bool, *, may_be_handed: bool) -> None:
        """Set whether to call ``rung()`` for wakeups; those that come meanwhile ring later.

        While ``may_be_handed`` is true, the thread takes Tasks that are handed over in any case.
        """
        self._cut_if_overdue()
        if (rings or may_be_handed) != self._wanted.is_set():
            (self._wanted.set if rings or may_be_handed else self._wanted.clear)()
        if rings != self._rings:
            self._rings = rings
            self._ring()

    def _cut_if_overdue(self) -> None:
        """Shut the listener's link down if a wait takes STATEMENT_TIMEOUT longer than it may.

        A link that has died in silence would else be taken for a living one for many minutes, and
        Tasks would be handed over through it.
        """
        since = self._since
        if since is not None and uptime() - since >= PIECE + settings.STATEMENT_TIMEOUT:
            self._since = uptime()
            shut_down(self._listener.link)

    def _ring(self) -> None:
        # Both threads set their own flag before they check the other's, so no wakeup is lost.
        if self._missed and self._rings:
            self._missed = False
            self._rung()

    def _may_rest(self, listener: "Listener") -> bool:
        return not self._wanted.is_set() and (listener.keeps or not listener.channel)

    def _run(self) -> None:
        listener = self._listener = self._store.listener()
        if listener is None:
            return
        try:
            self._wanted.wait()
            while True:
                may_rest = self._may_rest(listener)
                # Look once more before resting: a Task may have been handed over until then.
                self._since = uptime()
                came = listener.wait(0 if may_rest else PIECE)
                self._since = None
                if listener.is_deaf and not self._is_deaf:
                    self._is_deaf = True
                    log.pooled()
                handed = listener.handed()
                for each in handed:
                    self.handed.put(each)
                    self._wake()
                lost, self.channel = self.channel, listener.channel
                # No ring after a handed Task: the daemon looks when its row says idle again.
                if (came and not handed) or lost != self.channel:
                    self._missed = True
                    self._ring()
                if may_rest and self._may_rest(listener):
                    self._wanted.wait()
        except Exception as error:  # without it the daemon polls
            log.listening_ended(error=error, exc_info=error)
        finally:
            self.channel = ""
            listener.close()


# The hand-over: an enqueue that finds an idle daemon claims its Task for it, in its own commit.
#
# What it gains: on PostgreSQL a handler is entered 0.9 ms after the return of enqueue() instead of
# 2.9 ms, since the daemon need not claim. What it costs: an enqueue after a pause of 20 ms looks
# for an idle daemon, and an idle daemon keeps "idle" and the channel of its row up to date. The
# figures are in docs/performance.md ("Latency"), the reasons in docs/design/decisions.md: "Handed
# over by the one who enqueues". In the store it is `enqueue_handing.sql`, and the listener.


class HandOver:
    """The Tasks that enqueues hand over to this daemon, and what they may rely on meanwhile.

    An enqueue hands a Task over only to a daemon whose row says that it is idle, and through the
    channel that the row names. So this follows what the row says, as :class:`.lease.Renewal`
    writes it. All methods are for the event loop.
    """

    def __init__(self, identity: "Identity", wakeups: Wakeups) -> None:
        self._identity = identity
        self._wakeups = wakeups
        # What the row says, and whether an enqueue may hand over a Task now, or has without being
        # heard yet.
        self._channel = ""
        self.is_open = False
        self._taken = 0
        self._unheard_since: float | None = None

    def take(self) -> Iterator[Attempt]:
        """Yield each Task that was handed over to the current identity.

        The Tasks of an earlier identity were settled when this one joined.
        """
        while not self._wakeups.handed.empty():
            daemon, attempt = self._wakeups.handed.get()
            if daemon == self._identity.current:
                # The enqueue has marked the row as not idle.
                self._taken += 1
                self.is_open = False
                yield attempt

    @property
    def has_lost_channel(self) -> bool:
        """Whether this daemon no longer listens to the channel that the row names.

        A Task that was handed over through it is held under this identity unnoticed. Only the join
        of a new identity finds it.
        """
        return self._identity.current is not None and self._is_other(self._wakeups.channel)

    def _is_other(self, channel: str) -> bool:
        return self._channel not in ("", channel)

    def joined(self) -> None:
        """Note that the daemon has a new row, without a channel and not idle."""
        self._channel, self.is_open, self._unheard_since = "", False, None

    @property
    def wants_row(self) -> bool:
        """Whether the row of an idle daemon has to name another channel."""
        return self._channel != self._wakeups.channel

    def begin_row(self, *, idle: bool, takes_all: bool) -> "RowChannel | None":
        """Begin to write the row; return the channel to write, or None if it was lost just now.

        From now on an enqueue may hand over a Task through it. An idle daemon that would not start
        Tasks of all its Types at once names no channel: it is only woken up.
        """
        channel = self._wakeups.channel
        if self._is_other(channel):
            return None
        is_woken = idle and not takes_all
        row = RowChannel("" if is_woken else channel, before=self._channel, taken=self._taken)
        self._channel, self.is_open = row.channel, self.is_open or (idle and takes_all)
        return row

    def failed_row(self, row: "RowChannel") -> None:
        """Note that the row was not written, and is as it was."""
        self._channel = row.before

    def wrote_row(self, row: "RowChannel", *, idle: bool, unheard: bool) -> bool:
        """Note that the row was written; return whether it says idle.

        ``unheard``: a Task was handed over, and nobody has read that yet. If that lasts for
        RENEW_EVERY, the listener works, but does not see the Task: the identity is given up.
        """
        self.is_open = (idle and bool(row.channel)) or unheard
        if not unheard:
            self._unheard_since = None
        elif self._unheard_since is None:
            self._unheard_since = uptime()
        elif uptime() - self._unheard_since >= settings.RENEW_EVERY:
            log.channel_lost()
            self._identity.lose()
        # A Task that was handed over meanwhile may have come before this write: then the row has to
        # be written once more.
        return idle and row.taken == self._taken


class RowChannel(NamedTuple):
    """The channel that a renewal writes, the one before, and the Tasks handed over until then."""

    channel: str
    before: str
    taken: int

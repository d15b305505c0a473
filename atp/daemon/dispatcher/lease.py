"""The daemon's identity and its lease: joining, renewing, and reconciling after a failure."""

import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...commands import Mode
from ...conf import settings
from ...exceptions import LeaseLost
from ...operations.registry import registry
from ...placement import EXECUTOR, Amounts, Labels
from ...store.facts import DaemonFacts, Lost, Reconciled
from ...store.facts import Renewal as RenewalAnswer
from .. import log, protocol
from ..database import DatabaseThread, Result, is_outage
from ..options import hostname
from ..processes import Timers, uptime
from ..protocol import Key
from .attempts import Attempts

if TYPE_CHECKING:
    from ...store.protocol import Store
    from .claiming import Claiming, HandOver
    from .commands import DaemonCommands
    from .core import Core

# The identities of this daemon in the queue, its lease, and the offset of the database's clock.


@dataclass
class Identity:
    """The current identity of this daemon, and its earlier identities, which have to be ended.

    The daemon takes a new identity at its start and whenever it cannot be sure of the current one
    (:meth:`lose`), so that a late call under the old identity can claim nothing. ``pid`` is the
    supervisor's. ``lease_until``: the daemon kills its workers then, on the uptime clock. That is
    LEASE - KILL_AFTER seconds before others may take its Tasks.
    ``previous`` are the uuids of earlier identities that may still hold Tasks. ``left`` are
    the attempts (pairs of Instance and attempt) that they do hold, because other sessions
    have locked those.
    """

    pid: int
    types: tuple[str, ...]
    lock: str
    labels: Labels = field(default_factory=dict)
    capacity: Amounts = field(default_factory=dict)
    # What is known of the engine of its executor.
    engine: dict[str, Any] = field(default_factory=dict)
    previous: list[uuid.UUID] = field(default_factory=list)
    left: frozenset[Key] = field(default=frozenset(), init=False)
    current: uuid.UUID | None = field(default=None, init=False)
    candidate: uuid.UUID | None = field(default=None, init=False)
    lease_until: float = field(default=0.0, init=False)
    unbroken_since: float = field(default=0.0, init=False)
    offset: timedelta = field(default=timedelta(), init=False)
    # Whether the Types are registered.
    is_registered: bool = field(default=False, init=False)

    @property
    def name(self) -> str:
        """The name with which this daemon signs log records."""
        return f"{hostname()}:{self.pid}"

    def facts(self, request: str = "") -> DaemonFacts:
        """Return the values of the daemon's row for a join as the candidate."""
        return DaemonFacts(
            uuid=self.candidate,  # type: ignore[arg-type]
            host=hostname(),
            pid=self.pid,
            version=__version__,
            types=self.types,
            release=settings.RELEASE,
            signatures={
                name: registry.get(name).fingerprint for name in self.types if name in registry
            },
            labels=self.labels,
            capacity=self.capacity,
            lock=self.lock,
            request=request,
        )

    @property
    def holder(self) -> uuid.UUID:
        """The current identity, under which Tasks are held; only for use while there is one."""
        if self.current is None:
            raise LeaseLost("The daemon has no identity now.")
        return self.current

    def lose(self) -> None:
        """Give up the current identity: it becomes a previous one."""
        if self.current is not None:
            self.previous.append(self.current)
        self.current = None

    def propose(self) -> uuid.UUID:
        """Return the next identity. It stays the same until it has joined: a join is idempotent."""
        if self.candidate is None:
            self.candidate = uuid.uuid4()
        return self.candidate

    def join(
        self, store: "Store", holding: Collection[Key], request: str = ""
    ) -> tuple[Reconciled, list[uuid.UUID]]:
        """Join the queue as the candidate and end every earlier identity. Runs in a thread.

        Return :class:`Reconciled`, and the earlier identities that could not be ended yet.
        """
        facts = self.facts(request)
        return _together(
            (old, store.daemons.join(facts, lease=settings.LEASE, old=old, holding=holding))
            for old in self.previous or [None]  # type: ignore[list-item]
        )

    @staticmethod
    def settle(
        store: "Store",
        current: uuid.UUID,
        previous: Iterable[uuid.UUID],
        holding: Collection[Key],
    ) -> tuple[Reconciled, list[uuid.UUID]]:
        """End the previous identities, as far as the locks of other sessions allow it now.

        Runs in a thread. Return the same as :meth:`join`.
        """
        return _together(
            (old, store.daemons.settle(old, current, lease=settings.LEASE, holding=holding))
            for old in previous
        )

    def joined(
        self, reconciled: Reconciled, unsettled: list[uuid.UUID], sent: float, received: float
    ) -> None:
        """Make the candidate the current identity, after its join."""
        self.current, self.candidate = self.candidate, None
        self.settled(reconciled, unsettled)
        self.unbroken_since = sent
        self.renewed(reconciled.time, sent, received)

    def settled(self, reconciled: Reconciled, unsettled: list[uuid.UUID]) -> None:
        """Keep only the ``unsettled`` earlier identities."""
        self.previous, self.left = unsettled, frozenset(reconciled.left)

    def renewed(self, database_time: datetime, sent: float, received: float) -> None:
        """Extend the lease: a renewal was ``sent`` and acknowledged at these uptimes."""
        if self.lock and EXECUTOR not in self.labels:
            # The lease is a file lock, which cannot lapse while a process of this daemon lives.
            # What an engine runs on other hosts holds no lock: there it is a time as well.
            self.lease_until = float("inf")
        else:
            if (
                self.lease_until
                and sent - (self.lease_until - settings.KILL_AFTER) > settings.LEASE
            ):
                self.unbroken_since = sent
            self.lease_until = sent + settings.KILL_AFTER
        self.offset = _offset(database_time, sent, received)

    @property
    def leased(self) -> bool:
        """Whether the daemon has an identity and a lease, and so may hand out Tasks."""
        return self.current is not None and uptime() < self.lease_until

    @property
    def may_sweep(self) -> bool:
        """Whether this daemon may take away the Tasks of other daemons.

        It may only after its own renewals have succeeded for the length of one lease: the same
        outage may have cut off the others.
        """
        if self.current is None:
            return False
        return bool(self.lock) or uptime() - self.unbroken_since >= settings.LEASE

    def time(self, host_time: float) -> datetime:
        """Convert a time of this host's clock, in seconds, to a datetime on the database's."""
        time = datetime.fromtimestamp(host_time, UTC)
        return time + self.offset if self.offset else time


def _together(
    answers: Iterable[tuple[Any, Reconciled]],
) -> tuple[Reconciled, list[uuid.UUID]]:
    """Return the merged answers, and the old identities that are not settled."""
    left: dict[Key, str] = {}
    lost: tuple[Lost, ...] = ()
    unsettled: list[uuid.UUID] = []
    for old, answer in answers:
        left |= answer.left
        lost += answer.lost
        if not answer.is_settled:
            unsettled.append(old)
    return replace(answer, left=left, lost=lost), unsettled


def _offset(database_time: datetime, sent: float, received: float) -> timedelta:
    """Return how far the database's clock is ahead of this host's; zero if that is unknown."""
    now, passed = datetime.now(UTC), uptime()
    earliest = now - timedelta(seconds=passed - sent)
    latest = now - timedelta(seconds=passed - received)
    if earliest <= database_time <= latest:
        return timedelta()
    return database_time - earliest - (latest - earliest) / 2


# Membership: joining the queue, and joining it again after the identity was lost.

# The pause before the next try after a failure, in seconds; it doubles, up to the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 0.5
# Earlier identities may still hold Tasks that another session has locked. The daemon tries to
# end them this often, in seconds.
SETTLE_EVERY = 0.25
JOINING = "joining"
# If a kind of call has failed, and is not tried again for this many seconds while other calls
# succeed, its failure is forgotten.
FORGET_AFTER = 1.5
# A failure that persists is logged again after this many seconds.
SAY_AGAIN = 60.0


class Membership:
    """The membership of the dispatcher: it ends with its identity, and a join begins a new one.

    Joins run in the last of the ``threads``.
    """

    def __init__(
        self, core: "Core", threads: Sequence[DatabaseThread], daemon_commands: "DaemonCommands"
    ) -> None:
        self._core = core
        self._threads = threads
        self._thread = threads[-1]
        self._identity: Identity = core.identity
        self._unrecorded = core.unrecorded
        self._timers: Timers = core.timers
        self._tell: Callable[[Any], None] = core.tell
        self._daemon_commands = daemon_commands
        # The time of the failure of each kind of call that has not succeeded since.
        self._failing: dict[str, float] = {}
        self._failed_at = 0.0
        # The time when the failure of each kind of call was last logged.
        self._said_at: dict[str, float] = {}
        self._pause = FIRST_PAUSE

    def answered(self, result: Result[Any]) -> None:
        """Note that a call succeeded; the trouble is over when no kind of call is failing."""
        self._failing.pop(result.doing, None)
        # A call that was not tried again since then may never be.
        limit = uptime() - FORGET_AFTER
        self._failing = {doing: at for doing, at in self._failing.items() if at > limit}
        if not self._failing and self._pause > FIRST_PAUSE:
            self._pause = FIRST_PAUSE
            log.database_back(seconds=uptime() - self._failed_at)

    def locked(self, result: Result[Any]) -> None:
        """Try to join again soon, if another session's lock kept the daemon from joining."""
        if result.doing == JOINING:
            self._timers.later("rejoin", FIRST_PAUSE)

    def failed(self, result: Result[Any]) -> None:
        """Note that a call failed, reconnect, and give up the current identity."""
        if isinstance(result.error, LeaseLost):
            log.lease_lost(why=result.error)
        else:
            self._note_failure(result)
        for thread in self._threads:
            thread.reconnect()
        self._identity.lose()

    def _note_failure(self, result: Result[Any]) -> None:
        if not self._failing:
            self._failed_at = uptime()
        said = self._said_at.get(result.doing, 0.0)
        if result.doing not in self._failing or uptime() - said >= SAY_AGAIN:
            self._said_at[result.doing] = uptime()
            # An error that is not the database's fault is logged with its traceback.
            trace = None if is_outage(result.error) else result.error
            log.database_failed(doing=result.doing, error=_words(result.error), exc_info=trace)
        self._failing[result.doing] = uptime()
        self._timers.later("rejoin", self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def rejoin(self, then: Callable[[Reconciled], None]) -> None:
        """Take a new identity, if it is time to try; call ``then(reconciled)`` afterwards."""
        if not self._timers.passed("rejoin"):
            return
        self._tell(protocol.Joining(self._identity.propose()))
        holding = self._holding()

        def joined(result: Result[tuple[Reconciled, list[uuid.UUID]]]) -> None:
            answer, unsettled = result.value
            self._announce(answer)
            self._identity.joined(answer, unsettled, result.sent, result.received)
            self._tell_identities()
            self._tell(protocol.LeaseRenewed(self._identity.lease_until))
            self._timers.later("renew", settings.RENEW_EVERY)
            self._daemon_commands.joined(answer.request)
            then(answer)

        request = self._daemon_commands.request
        self._thread.submit(
            JOINING, lambda: self._identity.join(self._core.store, holding, request), joined
        )

    def settle(self, then: Callable[[Reconciled], None]) -> None:
        """Try again to end earlier identities; call ``then(reconciled)`` afterwards."""
        if not self._identity.previous or not self._timers.due("settle", SETTLE_EVERY):
            return
        holding, identity = self._holding(), self._identity
        current: Any = identity.current
        previous = tuple(identity.previous)

        def settled(result: Result[tuple[Reconciled, list[uuid.UUID]]]) -> None:
            if identity.current != current:
                return  # the identity was lost meanwhile; the next one settles all
            answer, unsettled = result.value
            then(answer)
            identity.settled(answer, unsettled)
            self._tell_identities()

        self._thread.submit(
            "ending earlier identities",
            lambda: identity.settle(self._core.store, current, previous, holding),
            settled,
        )

    def _holding(self) -> list[Key]:
        return sorted(
            {attempt.key for attempt in self._core.pool.attempts()} | self._unrecorded.keys()
        )

    def _tell_identities(self) -> None:
        identities: tuple[Any, ...] = (self._identity.current, *self._identity.previous)
        self._tell(protocol.Joined(identities))

    def _announce(self, answer: Reconciled) -> None:
        if self._identity.previous:
            log.rejoined(
                daemon=self._identity.candidate, kept=len(answer.kept), expired=len(answer.lost)
            )
        else:
            log.joined(daemon=self._identity.candidate)


def _words(error: BaseException | None) -> str:
    return " ".join(str(error).split()) or type(error).__name__


# Reconciling the Tasks in this daemon's memory with those that its new identity holds.


class Reconciling:
    """The reconciliation after each join, and whenever old identities have been settled."""

    def __init__(
        self,
        core: "Core",
        attempts: Attempts,
        renewal: "Renewal",
        daemon_commands: "DaemonCommands",
    ) -> None:
        self._core = core
        self._attempts = attempts
        self._renewal = renewal
        self._daemon_commands = daemon_commands

    def joined(self, reconciled: Reconciled) -> None:
        """Reconcile with the Tasks that the new identity holds."""
        unrecorded = self._core.unrecorded
        self._core.counters.lost(reconciled.lost, "its dispatcher ended")
        self._core.statistics.restart(reconciled.position)
        self._renewal.joined()
        unrecorded.readmit()
        self._attempts.reconcile(reconciled.kept | reconciled.left)
        # A call that still records under the old identity may have locked these.
        for key in reconciled.left:
            unrecorded.doubt(key)
        unrecorded.set_aside(reconciled.left)
        self._core.queue.call()

    def settled(self, reconciled: Reconciled) -> None:
        """Reconcile after other sessions have unlocked Tasks that an earlier identity held."""
        self._daemon_commands.joined(reconciled.request)
        self._core.counters.lost(reconciled.lost, "its dispatcher ended")
        moved: frozenset[Key] = self._core.identity.left - set(reconciled.left)
        self._core.unrecorded.readmit(moved)
        self._attempts.reconcile(reconciled.kept, moved)


# Renewing the lease, and updating the daemon's row: its workers, its mode, whether it is idle.

RENEWING = "renewing the lease"
# If the row is locked, the daemon writes it again after this many seconds.
WRITE_AGAIN = 2.0
# A renewal that has met a lock is tried again after this many seconds.
LOOK_AGAIN = 0.25
# After this many seconds of work the daemon's row no longer says that it is idle.
TELL_BUSY_AFTER = 0.1


class Renewal:
    """The renewal of the lease, when it is time and when the daemon's row has to change."""

    def __init__(
        self,
        core: "Core",
        attempts: Attempts,
        claiming: "Claiming",
        hand_over: "HandOver",
        daemon_commands: "DaemonCommands",
    ) -> None:
        self._core = core
        self._attempts = attempts
        self._claiming = claiming
        self._hand_over = hand_over
        self._daemon_commands = daemon_commands
        # The current values of the row.
        self._row_idle: bool | None = None
        self._row_mode = Mode.RUNNING
        self._busy_since, self._was_locked = 0.0, False

    def is_due(self) -> bool:
        """Tell whether it is time to renew, or the row has to change."""
        timers = self._core.timers
        has_news = timers.passed("news") and self._has_news()
        return timers.due("renew", settings.RENEW_EVERY) or has_news

    def joined(self) -> None:
        """Note that the daemon has a new row, without a channel and not idle."""
        self._hand_over.joined()
        self._row_idle, self._row_mode = None, Mode.RUNNING

    def handed(self) -> None:
        """Note that an enqueue has handed over a Task, and has marked the row as not idle."""
        self._row_idle = False

    def locked(self, result: Result[Any]) -> None:
        """Renew again soon, after a renewal met another session's lock.

        Counts that were added before the lock are not added again.
        """
        if result.doing == RENEWING:
            self._core.statistics.answered()
            self._was_locked = True
            self._core.timers.later("renew", LOOK_AGAIN)

    def _mode(self) -> Mode:
        """Return the mode for the row: QUIET only when no claim is on its way any more."""
        mode = self._daemon_commands.mode
        return Mode.RUNNING if mode is Mode.QUIET and self._claiming.is_claiming else mode

    def _has_news(self) -> bool:
        """Tell whether the row should change: its mode, its channel, or whether it is idle.

        An enqueue notifies only if some daemon's row says idle. Each notice costs the server a
        lock, so a daemon at work withdraws its idle after TELL_BUSY_AFTER.
        """
        mode = self._mode()
        # A daemon that stops and holds nothing is gone before anybody looks.
        if mode is not self._row_mode and (mode is not Mode.STOPPING or self._attempts.any()):
            return True
        if self._claiming.is_listening():
            self._busy_since = uptime()
            wants_channel = self._claiming.is_idle() and self._hand_over.wants_row
            return self._row_idle is not True or wants_channel
        return self._row_idle is True and uptime() - self._busy_since >= TELL_BUSY_AFTER

    def start(self, thread: DatabaseThread) -> None:
        """Submit a renewal to the thread."""
        core, daemon = self._core, self._core.identity.holder
        workers, mode = self._attempts.workers(), self._mode()
        idle, takes_all = self._claiming.is_listening(), self._claiming.is_idle()
        misfits, row = (
            core.misfits.by_type(),
            self._hand_over.begin_row(idle=idle, takes_all=takes_all),
        )
        engine = core.identity.engine
        if row is None:
            return  # the next turn finds that the channel was lost
        core.timers.later("renew", settings.RENEW_EVERY)

        # Leave out the counts if the row was locked just now.
        counts = None if self._was_locked else core.statistics.send()

        def renewed(result: Result[RenewalAnswer]) -> None:
            renewal = result.value
            core.statistics.answered()
            core.identity.renewed(renewal.time, result.sent, result.received)
            core.tell(protocol.LeaseRenewed(core.identity.lease_until))
            self._daemon_commands.obey(renewal.request)
            self._was_locked = renewal.is_spare
            if renewal.is_spare:
                # Only the spare lease was renewed: the row is as it was.
                self._hand_over.failed_row(row)
                core.timers.later("news", WRITE_AGAIN)
                core.caution.met(RENEWING)
                return
            if idle and not self._row_idle:
                # Enqueues before the row said idle have sent no notice: claim now.
                core.queue.call()
            self._row_idle = self._hand_over.wrote_row(row, idle=idle, unheard=renewal.unheard)
            self._row_mode = mode

        def renew() -> RenewalAnswer:
            # Add the counts before the renewal: an enqueue skips a row that is locked.
            core.statistics.add(core.store, daemon, counts)
            return core.store.daemons.renew(
                daemon,
                lease=settings.LEASE,
                workers=workers,
                idle=idle,
                mode=mode,
                channel=row.channel,
                misfits=misfits,
                engine=engine,
            )

        thread.submit(RENEWING, renew, renewed)

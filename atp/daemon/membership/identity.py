"""The identities of this daemon in the queue, its lease, and the offset of the database's clock."""

import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from ... import __version__
from ...conf import settings
from ...operations.registry import registry
from ...store.facts import DaemonFacts
from ..options import hostname
from ..system.processes import uptime


@dataclass
class Identity:
    """The current identity of this daemon, and its earlier identities, which have to be ended.

    The daemon takes a new identity at its start and after every failure of the database, so
    that a late call under the old identity can claim nothing. ``pid`` is the supervisor's.
    ``previous`` are the uuids of earlier identities that may still hold Tasks. ``left`` are
    the attempts (pairs of Instance and attempt) that they do hold, because other sessions
    have locked those.
    """

    pid: int
    types: tuple[str, ...]
    lock: str
    previous: list = field(default_factory=list)
    left: frozenset = field(default=frozenset(), init=False)
    current: uuid.UUID | None = field(default=None, init=False)
    candidate: uuid.UUID | None = field(default=None, init=False)
    lease_until: float = field(default=0.0, init=False)
    unbroken_since: float = field(default=0.0, init=False)
    offset: timedelta = field(default=timedelta(), init=False)
    # Whether the Types are registered.
    is_registered: bool = field(default=False, init=False)

    @property
    def name(self):
        """The name with which this daemon signs log records."""
        return f"{hostname()}:{self.pid}"

    def facts(self, request=""):
        """Return the values of the daemon's row for a join as the candidate."""
        return DaemonFacts(
            uuid=self.candidate,
            host=hostname(),
            pid=self.pid,
            version=__version__,
            types=self.types,
            release=settings.RELEASE,
            signatures={
                name: registry.get(name).fingerprint for name in self.types if name in registry
            },
            lock=self.lock,
            request=request,
        )

    def lose(self):
        """Give up the current identity: it becomes a previous one."""
        if self.current is not None:
            self.previous.append(self.current)
        self.current = None

    def propose(self):
        """Return the next identity. It stays the same until it has joined: a join is idempotent."""
        if self.candidate is None:
            self.candidate = uuid.uuid4()
        return self.candidate

    def join(self, store, holding, request=""):
        """Join the queue as the candidate and end every earlier identity. Runs in a thread.

        Return :class:`Reconciled`, and the earlier identities that could not be ended yet.
        """
        facts = self.facts(request)
        return _together(
            (old, store.daemons.join(facts, lease=settings.LEASE, old=old, holding=holding))
            for old in self.previous or [None]
        )

    @staticmethod
    def settle(store, current, previous, holding):
        """End the previous identities, as far as the locks of other sessions allow it now.

        Runs in a thread. Return the same as :meth:`join`.
        """
        return _together(
            (old, store.daemons.settle(old, current, lease=settings.LEASE, holding=holding))
            for old in previous
        )

    def joined(self, reconciled, unsettled, sent, received):
        """Make the candidate the current identity, after its join."""
        self.current, self.candidate = self.candidate, None
        self.settled(reconciled, unsettled)
        self.unbroken_since = sent
        self.renewed(reconciled.time, sent, received)

    def settled(self, reconciled, unsettled):
        """Keep only the ``unsettled`` earlier identities."""
        self.previous, self.left = unsettled, frozenset(reconciled.left)

    def renewed(self, database_time, sent, received):
        """Extend the lease: a renewal was ``sent`` and acknowledged at these uptimes."""
        if self.lock:
            # The lease is a file lock, which cannot lapse while a process of this daemon lives.
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
    def leased(self):
        """Whether the daemon has an identity and a lease, and so may hand out Tasks."""
        return self.current is not None and uptime() < self.lease_until

    @property
    def may_sweep(self):
        """Whether this daemon may take away the Tasks of other daemons.

        It may only after its own renewals have succeeded for the length of one lease: the same
        outage may have cut off the others.
        """
        if self.current is None:
            return False
        return bool(self.lock) or uptime() - self.unbroken_since >= settings.LEASE

    def time(self, host_time):
        """Convert a time of this host's clock, in seconds, to a datetime on the database's."""
        time = datetime.fromtimestamp(host_time, UTC)
        return time + self.offset if self.offset else time


def _together(answers):
    """Return the merged answers, and the old identities that are not settled."""
    left, lost, unsettled = {}, (), []
    for old, answer in answers:
        left |= answer.left
        lost += answer.lost
        if not answer.is_settled:
            unsettled.append(old)
    return replace(answer, left=left, lost=lost), unsettled


def _offset(database_time, sent, received):
    """Return how far the database's clock is ahead of this host's; zero if that is unknown."""
    now, passed = datetime.now(UTC), uptime()
    earliest = now - timedelta(seconds=passed - sent)
    latest = now - timedelta(seconds=passed - received)
    if earliest <= database_time <= latest:
        return timedelta()
    return database_time - earliest - (latest - earliest) / 2

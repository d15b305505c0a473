"""The identities of this daemon in the queue, its lease, and the database's clock."""

import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from ... import __version__
from ...conf import settings
from ...store.values import DaemonFacts
from ...verbs.registry import registry
from ..options import hostname
from ..system.processes import uptime


@dataclass
class Identity:
    """The current identity, and earlier ones that have to be ended first.

    A new one is taken at the start and after every failure of the database,
    so that a call still on its way under the old one can take nothing.
    ``pid`` is the supervisor's; ``previous`` are uuids of this daemon's
    earlier identities that may still hold something. ``left`` are the pairs of Instance
    and attempt of this daemon that they do hold, since somebody else has locked those.
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
        """The name with which this daemon signs."""
        return f"{hostname()}:{self.pid}"

    def facts(self, request=""):
        """Return the facts that stand in its row when it joins as the candidate."""
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
        """The current identity is not to be used any more."""
        if self.current is not None:
            self.previous.append(self.current)
        self.current = None

    def propose(self):
        """Choose the next identity. The same one until it has joined: joining twice is one join."""
        if self.candidate is None:
            self.candidate = uuid.uuid4()
        return self.candidate

    def join(self, store, holding, request=""):
        """Join the queue as the candidate, ending every earlier identity. Runs in a thread.

        Returns :class:`Reconciled`, and the earlier identities that could not be ended yet.
        """
        facts = self.facts(request)
        return _together(
            (old, store.join(facts, lease=settings.LEASE, old=old, holding=holding))
            for old in self.previous or [None]
        )

    @staticmethod
    def settle(store, current, previous, holding):
        """Go on with ending the previous identities, as far as locks of others allow it now.

        Runs in a thread. Returns as :meth:`join` does.
        """
        return _together(
            (old, store.settle(old, current, lease=settings.LEASE, holding=holding))
            for old in previous
        )

    def joined(self, reconciled, unsettled, sent, received):
        """The candidate has become the current identity."""
        self.current, self.candidate = self.candidate, None
        self.settled(reconciled, unsettled)
        self.unbroken_since = sent
        self.renewed(reconciled.time, sent, received)

    def settled(self, reconciled, unsettled):
        """Only those earlier identities are left that are ``unsettled``."""
        self.previous, self.left = unsettled, frozenset(reconciled.left)

    def renewed(self, database_time, sent, received):
        """A renewal was sent and acknowledged at these times on the uptime clock."""
        if self.lock:
            # The lease is the lock, which cannot lapse while a process of ours lives.
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
        """Whether Tasks may be handed out: the workers will not be killed for a lapsed lease."""
        return self.current is not None and uptime() < self.lease_until

    @property
    def may_sweep(self):
        """Whether this daemon may take away the Tasks of others.

        Only after its own renewals went through unbroken for one lease: the
        others may have been cut off by what cut this one off.
        """
        if self.current is None:
            return False
        return bool(self.lock) or uptime() - self.unbroken_since >= settings.LEASE

    def time(self, host_time):
        """Return a time taken on this host's clock, in seconds, as the database would tell it."""
        time = datetime.fromtimestamp(host_time, UTC)
        return time + self.offset if self.offset else time


def _together(answers):
    """Return what all answers together say, and the old identities that are not settled."""
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

"""Who this daemon is to the queue: its identities, its lease, and the database's clock."""

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from .. import __version__
from ..conf import settings
from ..store.values import DaemonFacts
from .options import hostname
from .processes import uptime


@dataclass
class Identity:
    """The current identity, and those whose end has to be made sure of first.

    A new one is taken at the start and after every failure of the database,
    so that a call still on its way under the old one can take nothing.
    ``pid`` is the supervisor's; ``previous`` are uuids of this daemon's
    earlier identities that may still hold something.
    """

    pid: int
    types: tuple[str, ...]
    lock: str
    previous: list = field(default_factory=list)
    current: uuid.UUID | None = None
    candidate: uuid.UUID | None = None
    lease_until: float = 0.0
    unbroken_since: float = 0.0
    offset: timedelta = timedelta()

    @property
    def name(self):
        """How this daemon signs."""
        return f"{hostname()}:{self.pid}"

    def facts(self, request=""):
        """Return what it says of itself when it joins as the candidate."""
        return DaemonFacts(
            uuid=self.candidate,
            host=hostname(),
            pid=self.pid,
            version=__version__,
            types=self.types,
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
        """Join the queue as the candidate, ending every earlier identity. Runs in a thread."""
        facts = self.facts(request)
        answer, lost = None, []
        for old in self.previous or [None]:
            answer = store.join(facts, lease=settings.LEASE, old=old, holding=holding)
            lost += answer.lost
        return answer, lost

    def joined(self, answer, sent, received):
        """The candidate has become the current identity."""
        self.current, self.candidate, self.previous = self.candidate, None, []
        self.unbroken_since = sent
        self.renewed(answer.time, sent, received)

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


def _offset(database_time, sent, received):
    """How far the database's clock is ahead of this host's; nothing if that cannot be told."""
    now, passed = datetime.now(UTC), uptime()
    earliest = now - timedelta(seconds=passed - sent)
    latest = now - timedelta(seconds=passed - received)
    if earliest <= database_time <= latest:
        return timedelta()
    return database_time - earliest - (latest - earliest) / 2

"""A daemon: its facts, its lease, and what is taken from it when it is lost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from uuid import UUID

# The keys of Instances whose inputs a daemon's handlers did not take, by Type.
Misfits = Mapping[str, Sequence[int]]
NO_MISFITS: Misfits = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class DaemonFacts:
    """The facts that a daemon writes when it takes a row. ``lock`` is as in the model.

    ``request`` is the last order that it was given, under an identity that may be gone.
    ``release`` is that of the project, ``signatures`` are hashes of what its handlers take.
    """

    uuid: UUID
    host: str
    pid: int
    version: str
    types: tuple[str, ...]
    lock: str = ""
    request: str = ""
    release: str = ""
    signatures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Renewal:
    """The answer to a renewal: the database's time, and the daemon's request if any.

    ``unheard`` says that it was handed a Task of which its listener has not heard yet.
    Then its row does not say that it is idle. ``is_spare`` says that somebody else has locked
    the daemon's row, so that only the spare lease was renewed and the row is as it was.
    """

    time: datetime
    request: str = ""
    unheard: bool = False
    is_spare: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """An attempt that was taken away; ``stale`` says that its Instance was given up."""

    type: str
    uuid: UUID
    attempt: int
    stale: bool


@dataclass(frozen=True, kw_only=True)
class Swept:
    """The outcome of a sweep: the daemons found lost, and the attempts taken from them."""

    daemons: tuple[str, ...] = ()
    lost: tuple[Lost, ...] = ()

    @property
    def expired(self) -> int:
        """The number of attempts that were taken away."""
        return len(self.lost)


@dataclass(frozen=True, kw_only=True)
class Reconciled:
    """The outcome of taking over an identity.

    ``kept`` is what the new identity holds: the state by pair of Instance and attempt.
    ``left`` is what the old one still holds, since somebody else has locked it, and
    ``lost`` are the attempts that were taken away. ``is_settled`` tells whether the old
    identity is gone. ``request`` is the order that the new one is given. LogRecords up to
    ``position`` it does not count itself.
    """

    time: datetime
    kept: dict[tuple[int, int], str] = field(default_factory=dict)
    left: dict[tuple[int, int], str] = field(default_factory=dict)
    lost: tuple[Lost, ...] = ()
    is_settled: bool = True
    request: str = ""
    position: int = 0

    @property
    def expired(self) -> int:
        """The number of attempts that were taken away."""
        return len(self.lost)

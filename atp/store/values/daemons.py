"""A daemon: its facts, its lease, and the attempts that are taken from it when it is lost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from uuid import UUID

# By Type, the keys of Instances whose inputs the handlers of a daemon did not take.
Misfits = Mapping[str, Sequence[int]]
NO_MISFITS: Misfits = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class DaemonFacts:
    """The facts that a daemon writes when it takes a row; ``lock`` is as in the model.

    ``request`` is the last order to the daemon, perhaps under an earlier identity. ``release`` is
    the project's release. ``signatures`` are hashes of the parameters of its handlers, by Type.
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
    """The answer to a renewal: the database's time, and the order to the daemon, if any.

    ``unheard`` says that the daemon was handed a Task of which its listener has not heard yet; its
    row then does not say that it is idle. ``is_spare`` says that another session has locked the
    daemon's row: only the spare lease was renewed, and the row is as it was.
    """

    time: datetime
    request: str = ""
    unheard: bool = False
    is_spare: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """An attempt that was taken away; ``stale`` says that its Instance was given up: it FAILED."""

    type: str
    uuid: UUID
    attempt: int
    stale: bool


@dataclass(frozen=True, kw_only=True)
class Swept:
    """The outcome of a sweep: the lost daemons, and the attempts taken from them."""

    daemons: tuple[str, ...] = ()
    lost: tuple[Lost, ...] = ()

    @property
    def expired(self) -> int:
        """The number of attempts that were taken away."""
        return len(self.lost)


@dataclass(frozen=True, kw_only=True)
class Reconciled:
    """The outcome of taking over an identity.

    ``kept`` are the Tasks that the new identity holds: states by (Instance, attempt). ``left`` are
    those that the old identity still holds, since another session has locked them. ``lost`` are
    the attempts that were taken away. ``is_settled`` tells whether the old identity is gone.
    ``request`` is the order to the new identity. The daemon does not count LogRecords with keys up
    to ``position``.
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

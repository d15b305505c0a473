"""What all parts of the dispatcher share: the store, the identity, the pool, what is unrecorded."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...store.common.turns import ClaimMemory
from ..processes import Timers, uptime
from ..shared_memory import Page
from .capacity import Capacity
from .claiming import Caution
from .downstreams import Downstreams
from .lease import Identity
from .pool import Pool
from .reader import Counters, Misfits, Statistics
from .recording import UnrecordedChanges

if TYPE_CHECKING:
    from ...store.protocol import Store

# The parts of the dispatcher name this in their hints, and import nothing of it.

# What the dispatcher knows of the queue, which decides when it looks at the queue again.


class QueueState:
    """The state of the queue as far as this dispatcher knows it. All parts share it.

    ``put_backs`` counts the times that Tasks were put back into the queue. ``calls`` counts the
    reasons to look, put-backs included. ``more_waits``: a Task may be due now. Times on the
    uptime clock, or None: ``due_at``, when the next Task is due; ``planned_at``, when the next
    slot of a schedule is due, if that lies ahead; ``graphless_at``, when a look found no live
    graph. ``jobs`` are the names of the jobs for which the last look has found a reason.
    """

    def __init__(self) -> None:
        self.put_backs = self.calls = 0
        self.more_waits = False
        self.due_at: float | None = None
        self.planned_at: float | None = None
        self.graphless_at: float | None = None
        self.jobs: set[str] = set()
        # Whether a worker has become free: a process, and a place of a loop.
        self._freed = {False: False, True: False}
        # The number of put-backs when a look found no due Task in the queue, for processes and for
        # loops.
        self._empty_at: dict[bool, int | None] = {False: None, True: None}

    def call(self) -> None:
        """Note that a Task may wait in the queue."""
        self.calls += 1
        self.more_waits = True

    def put_back(self) -> None:
        """Note that a Task was put back into the queue."""
        self.put_backs += 1
        self.call()

    # ``loops`` tells the Types that run in loops from the others.

    def free(self, *, loops: bool = False) -> None:
        """Note that a worker has become free."""
        self._freed[loops] = True

    def take_freed(self, *, loops: bool = False) -> bool:
        """Tell whether a worker has become free since the last call."""
        freed, self._freed[loops] = self._freed[loops], False
        return freed

    def found_empty(self, put_backs: int, *, loops: bool = False) -> None:
        """Note that a look found no due Task; it began after this number of put-backs."""
        self._empty_at[loops] = put_backs

    def forget_empty(self, *, loops: bool = False) -> None:
        """Forget that the queue was found empty, because a new look begins."""
        self._empty_at[loops] = None

    def is_empty(self, *, loops: bool = False) -> bool:
        """Tell whether the last look found no due Task, and none was put back since."""
        return self._empty_at[loops] == self.put_backs

    @property
    def is_due(self) -> bool:
        """Whether the time ``due_at`` has come."""
        return self.due_at is not None and uptime() >= self.due_at


# The core of a dispatcher: the parts that all others share.


@dataclass(frozen=True, kw_only=True)
class Core:
    """The parts that all other parts need. ``tell(message)`` sends to the supervisor."""

    store: "Store"
    identity: Identity
    page: Page
    tell: Callable[[Any], None]
    pool: Pool
    capacity: Capacity
    unrecorded: UnrecordedChanges = field(default_factory=UnrecordedChanges)
    timers: Timers = field(default_factory=Timers)
    caution: Caution = field(default_factory=Caution)
    queue: QueueState = field(default_factory=QueueState)
    counters: Counters = field(default_factory=Counters)
    statistics: Statistics = field(default_factory=Statistics)
    misfits: Misfits = field(default_factory=Misfits)
    downstreams: Downstreams = field(default_factory=Downstreams)
    memory: ClaimMemory = field(default_factory=ClaimMemory)

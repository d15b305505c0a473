"""The core of a dispatcher: the parts that all others share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ...store.common.turns import ClaimMemory
from ..membership.identity import Identity
from ..pool.counters import Counters
from ..pool.downstreams import Downstreams
from ..pool.misfits import Misfits
from ..pool.pool import Pool
from ..pool.statistics import Statistics
from ..shared.running_page import Page
from ..system.timers import Timers
from .caution import Caution
from .queue_state import QueueState
from .unrecorded import UnrecordedChanges


@dataclass(frozen=True, kw_only=True)
class Core:
    """The parts that all other parts need. ``tell(message)`` sends to the supervisor."""

    store: object
    identity: Identity
    page: Page
    tell: Callable
    pool: Pool = field(default_factory=Pool)
    unrecorded: UnrecordedChanges = field(default_factory=UnrecordedChanges)
    timers: Timers = field(default_factory=Timers)
    caution: Caution = field(default_factory=Caution)
    queue: QueueState = field(default_factory=QueueState)
    counters: Counters = field(default_factory=Counters)
    statistics: Statistics = field(default_factory=Statistics)
    misfits: Misfits = field(default_factory=Misfits)
    downstreams: Downstreams = field(default_factory=Downstreams)
    memory: ClaimMemory = field(default_factory=ClaimMemory)

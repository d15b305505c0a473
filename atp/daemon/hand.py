"""What a worker has in hand, and what it has it in."""

from collections import OrderedDict
from dataclasses import dataclass, field

from ..store.values import Claimed
from .channel import Channel


@dataclass(eq=False)
class Holding:
    """A claimed Task in this daemon's hands.

    ``ask`` is the event that its attempt shall end with when it was asked to
    end, and ``why`` the reason. ``start_known`` says that its start is recorded, or about to be.
    """

    claimed: Claimed
    since: float
    started: float | None = None
    start_known: bool = False
    ask: str = ""
    why: str = ""

    @property
    def key(self):
        return self.claimed.instance, self.claimed.attempt


@dataclass(eq=False)
class Link:
    """One worker: its two channel ends, and what it has in hand in the order of sending."""

    slot: int
    pid: int
    ours: Channel
    theirs: Channel
    hand: OrderedDict = field(default_factory=OrderedDict)
    # What waits for its start to be recorded before this worker gets it.
    reserved: Holding | None = None

    @property
    def running(self):
        """What it has started, or None."""
        first = next(iter(self.hand.values()), None)
        return first if first is not None and first.started is not None else None

    def close(self):
        self.ours.close()
        self.theirs.close()

"""What a worker has in hand, and what it has it in."""

import pickle
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import lru_cache

from ..store.values import Claimed
from .channel import Channel
from .ring import Ring
from .tokens import Tokens


class Holding:
    """A claimed Task in this daemon's hands; ``key`` tells its attempt from every other.

    ``since`` is when it came where it is, ``place`` its place in the order of
    claiming, ``expected`` how long it is expected to run, in seconds. ``ask``
    is the event that its attempt shall end with when it was asked to end, and
    ``why`` the reason. ``start_known`` says that its start is recorded, or about
    to be, ``alone`` that nothing else may be in its worker's hand.
    """

    # What most never differ in stands here once: one is made of every task.
    expected: float = 0.0
    serial: int = 0
    started: float | None = None
    start_known: bool = False
    # Its worker has committed its end.
    concluded: bool = False
    ask: str = ""
    why: str = ""
    # That it is to pause has been said; the pause that it is in; and for how long it
    # was in others, in seconds.
    is_to_pause: bool = False
    pause: object = None
    paused: float = 0.0

    def __init__(self, claimed, since, place=0, *, alone=False):
        self.claimed = claimed
        self.key = claimed.instance, claimed.attempt
        self.since = since
        self.place = place
        self.alone = alone


@dataclass(eq=False)
class Link:
    """One worker: the ways to and from it, and what it has in hand in the order of sending.

    ``expected`` is how long all that it has in hand is expected to run.
    """

    slot: int
    pid: int
    channel: Channel
    tokens: Tokens
    ring: Ring
    hand: OrderedDict = field(default_factory=OrderedDict)
    expected: float = 0.0
    serial: int = 0
    # Attempts by key that it may be about to start, and must not go on with.
    condemned: dict = field(default_factory=dict)
    # What waits for its start to be recorded before this worker gets it.
    reserved: Holding | None = None
    # It starts nothing of what it is given, and has said nothing since.
    is_stuck: bool = False
    # It has been told to end, and when it was last, on the uptime clock.
    is_leaving: bool = False
    told: float = 0.0

    @property
    def first(self):
        """What it runs, or is about to; None if its hand is empty."""
        return next(iter(self.hand.values()), None)

    @property
    def running(self):
        """What it is known to have started, or None."""
        first = self.first
        return first if first is not None and first.started is not None else None

    @property
    def is_paused(self):
        """Whether what it runs is on hold."""
        running = self.running
        return running is not None and running.pause is not None and not running.pause.may_go

    @property
    def is_free(self):
        """Whether it has nothing in hand, and would start what it is given."""
        is_out = self.is_stuck or self.is_leaving
        return not self.hand and self.reserved is None and not is_out

    def add(self, holding):
        """Put something into its hand."""
        self.serial += 1
        holding.serial = self.serial
        self.hand[holding.key] = holding
        self.expected += holding.expected

    def drop(self, key):
        """Take something out of its hand; returns it, or None."""
        holding = self.hand.pop(key, None)
        if holding is not None:
            self.expected = self.expected - holding.expected if self.hand else 0.0
        return holding

    def close(self):
        self.channel.close()
        self.tokens.close()


# What a Type says is the same for all its Tasks, and takes longer to make from its parts
# than all the rest.
_pickled = lru_cache(pickle.dumps)
_unpickled = lru_cache(pickle.loads)
_PARAMETERS, _TIME = map(Claimed._fields.index, ("parameters", "time"))


def packed(holdings):
    """Return what is sent to a worker of these: serial numbers and plain values.

    When they were claimed stays here: of all values that takes longest to read.
    """
    tasks, last, pickled = [], None, b""
    for holding in holdings:
        values = list(holding.claimed)
        if values[_PARAMETERS] is not last:
            last = values[_PARAMETERS]
            pickled = _pickled(last)
        values[_PARAMETERS] = pickled
        values[_TIME] = None
        tasks.append((holding.serial, values))
    return tasks


def unpacked(tasks):
    """Yield the serial number and the :class:`Claimed` of each that :func:`packed` has given.

    Its ``time`` is None.
    """
    for serial, values in tasks:
        values[_PARAMETERS] = _unpickled(values[_PARAMETERS])
        yield serial, Claimed._make(values)

"""The tasks assigned to one worker, and the channel that carries them."""

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime

from ..shared.channel import Channel
from ..shared.ring import Ring
from ..shared.tokens import Tokens


class Holding:
    """A claimed Task of a ``type`` in this daemon's hands; its ``key`` is that of its attempt.

    ``since`` is when it began to wait, or was assigned to its worker; ``place`` is its
    place in the order of claiming; it is ``expected`` to run for so many seconds. ``ask``
    is the event with which its attempt shall end, if it was asked to end, and ``why`` the
    reason. ``start_known`` says that its start is recorded, or about to be; ``alone``
    that no other task may be assigned to its worker; so does ``single``, but its start needs
    no record before.
    """

    # One of these is made for every task: the usual values stand in the class.
    expected: float = 0.0
    serial: int = 0
    started: float | None = None
    start_known: bool = False
    # Its worker has committed its end.
    concluded: bool = False
    # When it began, as that is recorded or about to be.
    began: datetime | None = None
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
        self.type = claimed.parameters.type
        self.since = since
        self.place = place
        self.alone = alone
        self.single = alone


@dataclass(eq=False)
class WorkerLink:
    """One worker: its channels, and the tasks ``assigned`` to it in the order of sending.

    All its tasks together are ``expected`` to run for so many seconds.
    """

    slot: int
    pid: int
    channel: Channel
    tokens: Tokens
    ring: Ring
    assigned: OrderedDict = field(default_factory=OrderedDict, init=False)
    expected: float = field(default=0.0, init=False)
    serial: int = field(default=0, init=False)
    # Attempts by key that it may be about to start, and that are not this daemon's any more.
    revoked: dict = field(default_factory=dict, init=False)
    # The attempt that waits for its start to be recorded before this worker gets it.
    reserved: Holding | None = field(default=None, init=False)
    # It starts nothing of what it is given, and has said nothing since.
    is_stuck: bool = field(default=False, init=False)
    # It is to end; and when that was last asked for, on the uptime clock.
    is_leaving: bool = field(default=False, init=False)
    dismissed_at: float = field(default=0.0, init=False)

    @property
    def first(self):
        """The task that it runs, or is about to run; None if it has none."""
        return next(iter(self.assigned.values()), None)

    @property
    def running(self):
        """The task that it is known to have started, or None."""
        first = self.first
        return first if first is not None and first.started is not None else None

    @property
    def is_paused(self):
        """Whether the task that it runs is paused."""
        running = self.running
        return running is not None and running.pause is not None and not running.pause.may_go

    @property
    def is_free(self):
        """Whether it has no task, and would start one that it is given."""
        is_out = self.is_stuck or self.is_leaving
        return not self.assigned and self.reserved is None and not is_out

    def add(self, holding):
        """Assign a task to it."""
        self.serial += 1
        holding.serial = self.serial
        self.assigned[holding.key] = holding
        self.expected += holding.expected

    def drop(self, key):
        """Take a task away from it; returns the task, or None."""
        holding = self.assigned.pop(key, None)
        if holding is not None:
            self.expected = self.expected - holding.expected if self.assigned else 0.0
        return holding

    def close(self):
        self.channel.close()
        self.tokens.close()

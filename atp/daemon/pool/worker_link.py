"""The tasks assigned to one worker, and the channel that carries them."""

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime

from ..shared.channel import Channel
from ..shared.ring import Ring
from ..shared.tokens import Tokens


class Holding:
    """A claimed Task that this daemon holds; ``key`` is the pair of Instance and attempt.

    ``since`` is the time when it began to wait or was assigned to its worker. ``place`` is its
    place in the order of claims. It is ``expected`` to run for this many seconds. If the
    attempt was asked to end, ``ask`` is the event with which it shall end and ``why`` the
    reason. ``start_known``: its start is recorded, or about to be. ``single``: its worker gets
    no other task beside it. ``alone``: the same, and its start is recorded first.
    """

    # A Holding is made for every task: to save time, the usual values are class attributes.
    expected: float = 0.0
    serial: int = 0
    started: float | None = None
    start_known: bool = False
    # Its worker has committed its end.
    concluded: bool = False
    # The start of the attempt that is recorded or about to be.
    began: datetime | None = None
    ask: str = ""
    why: str = ""
    # Whether it was asked to pause; its current pause; the length of its earlier pauses, in
    # seconds.
    is_to_pause: bool = False
    pause: object = None
    paused: float = 0.0
    # The seconds of its run time that earlier periods of usage have counted.
    counted: float = 0.0

    def __init__(self, claimed, since, place=0, *, alone=False):
        self.claimed = claimed
        self.key = claimed.instance, claimed.attempt
        self.type = claimed.parameters.type
        self.since = since
        self.place = place
        self.alone = alone
        self.single = alone

    def run_time(self, now):
        """Return the seconds that it has run until ``now``, on the uptime clock, without pauses."""
        if self.started is None:
            return 0.0
        until = now if self.pause is None else self.pause.since
        return until - self.started - self.paused


@dataclass(eq=False)
class WorkerLink:
    """One worker: its channel, its tokens, its ring, and the tasks ``assigned`` to it, in order.

    All its tasks together are ``expected`` to run for this many seconds.
    """

    slot: int
    pid: int
    channel: Channel
    tokens: Tokens
    ring: Ring
    assigned: OrderedDict = field(default_factory=OrderedDict, init=False)
    expected: float = field(default=0.0, init=False)
    serial: int = field(default=0, init=False)
    # Attempts, by key, that this daemon no longer holds, but that the worker may still run.
    revoked: dict = field(default_factory=dict, init=False)
    # The attempt that waits for its start to be recorded before this worker gets it.
    reserved: Holding | None = field(default=None, init=False)
    # It has not said yet that it is ready; it has said that it is about to exit.
    is_starting: bool = field(default=False, init=False)
    is_retiring: bool = field(default=False, init=False)
    # It has tasks and starts none.
    is_stuck: bool = field(default=False, init=False)
    # It was dismissed; and the time of the last dismissal, on the uptime clock.
    is_leaving: bool = field(default=False, init=False)
    dismissed_at: float = field(default=0.0, init=False)

    @property
    def first(self):
        """The task that the worker runs or is about to run; None if it has no task."""
        return next(iter(self.assigned.values()), None)

    @property
    def running(self):
        """The task that the worker is known to run, or None."""
        first = self.first
        return first if first is not None and first.started is not None else None

    @property
    def is_paused(self):
        """Whether the worker's running task is paused."""
        running = self.running
        return running is not None and running.pause is not None and not running.pause.may_go

    @property
    def is_free(self):
        """Whether the worker has no task, and takes one."""
        return not self.assigned and self.reserved is None and self.takes_tasks

    @property
    def takes_tasks(self):
        """Whether the worker is ready, and is neither stuck nor about to exit."""
        is_going = self.is_leaving or self.is_retiring
        return not (self.is_starting or self.is_stuck or is_going)

    def add(self, holding):
        """Assign a task to the worker."""
        self.serial += 1
        holding.serial = self.serial
        self.assigned[holding.key] = holding
        self.expected += holding.expected

    def drop(self, key):
        """Take a task away from the worker; return the task, or None."""
        holding = self.assigned.pop(key, None)
        if holding is not None:
            self.expected = self.expected - holding.expected if self.assigned else 0.0
        return holding

    def close(self):
        self.channel.close()
        self.tokens.close()

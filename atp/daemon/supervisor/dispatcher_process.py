"""The supervisor's view of the dispatcher: its process, its channel and its last messages."""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from .. import log, processes, protocol
from ..processes import uptime
from ..protocol import Channel, Closed, Freeze, Interrupt, Kill, TakeStack, Thaw
from ..shared_memory import Tokens

# If dispatchers die within this many seconds, each next one is started after a longer pause.
QUICK_DEATH = 5.0
SLOWEST_RESTART = 10.0
MOST_UNREAD = 8
LONGEST_TURN = 1.0


class DispatcherProcess:
    """The current dispatcher, and then its successor; ``pid`` is None while there is none.

    ``identities`` are the uuids under which Tasks may still be held. The workers may live
    until ``lease_until`` on the uptime clock. ``request`` is the last request in the daemon's
    row. ``stop`` is the dispatcher's reason to stop the daemon, "" if it has none.
    """

    def __init__(self) -> None:
        self.pid: int | None = None
        self.channel: Channel | None = None
        self.identities: list[UUID] = []
        self.lease_until: float | None = None
        # The seconds without a sign of life from it, and until when they are counted.
        self._silent = self._listened = 0.0
        # The number of additional workers that it wants, in place of paused ones.
        self.spare = 0
        self.request = self.stop = ""
        self._outbox: list[tuple[tuple[Any, ...], Sequence[Channel | Tokens]]] = []
        self._started = self._due = 0.0
        self._quick_deaths = 0

    @property
    def is_due(self) -> bool:
        """Whether there is no dispatcher, and the supervisor may start one now."""
        return self.pid is None and uptime() >= self._due

    @property
    def is_reading(self) -> bool:
        """Whether the dispatcher reads its messages. Unread ones keep descriptors open here."""
        return self.pid is not None and len(self._outbox) < MOST_UNREAD

    def started(self, pid: int, channel: Channel) -> None:
        """Note the pid and the channel of a dispatcher that has just been started."""
        self.pid, self.channel = pid, channel
        self._started = self._listened = uptime()
        self._silent = 0.0
        self.lease_until = None
        self.spare = 0

    def died(self, status: int) -> None:
        """Note its death: the next dispatcher is due at once, or later if they keep dying."""
        quick = uptime() - self._started < QUICK_DEATH
        self._quick_deaths = self._quick_deaths + 1 if quick else 0
        pause = 0.0
        if self._quick_deaths > 1:
            pause = min(2.0 ** (self._quick_deaths - 2), SLOWEST_RESTART)
        self._due = uptime() + pause
        how = processes.describe_status(status)
        log.dispatcher_died(pid=self.pid, how=how, seconds=pause)
        self.pid = None
        self.close()

    def close(self) -> None:
        """Close the channel, and the ends that wait to be passed through it."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None
        for _, ends in self._outbox:
            for end in ends:
                end.close()
        self._outbox = []

    def receive(self) -> Iterator[Kill | Interrupt | Freeze | Thaw | TakeStack]:
        """Note the dispatcher's messages about itself; yield those that concern a worker."""
        while self.channel is not None:
            try:
                message, _ = self.channel.receive(wait=False)
            except (BlockingIOError, Closed):
                return
            self._silent = 0.0
            match message:
                case protocol.LeaseRenewed():
                    self.lease_until = message.until
                case protocol.Joining():
                    if message.identity not in self.identities:
                        self.identities.append(message.identity)
                case protocol.Joined():
                    self.identities = list(message.identities)
                case protocol.SpareWanted():
                    self.spare = message.count
                case protocol.Ordered():
                    self.request = message.request
                case protocol.StopWanted():
                    self.stop = message.why
                case protocol.Alive():
                    pass
                case _:
                    yield message

    def send(self, message: tuple[Any, ...], ends: Sequence[Channel | Tokens] = ()) -> None:
        """Send a message and pass the ``ends``; later, if the dispatcher is not reading."""
        self._outbox.append((message, ends))
        self.flush()

    def flush(self) -> None:
        """Send the messages that could not be sent before."""
        while self._outbox and self.channel is not None:
            message, ends = self._outbox[0]
            try:
                descriptors = [number for end in ends for number in end.descriptors()]
                self.channel.send(message, descriptors, wait=False)
            except (BlockingIOError, Closed):
                return
            self._outbox.pop(0)
            for end in ends:
                end.close()

    def end_if_silent(self, limit: float) -> None:
        """Kill the dispatcher if it has given no sign of life for ``limit`` seconds.

        Each turn of the supervisor counts as LONGEST_TURN at most: if it takes longer, the host was
        suspended or both processes were frozen, and the dispatcher could not give one.
        """
        now = uptime()
        self._silent += min(now - self._listened, LONGEST_TURN)
        self._listened = now
        if self.pid is not None and self._silent > limit:
            log.dispatcher_hung(pid=self.pid, seconds=self._silent)
            processes.kill(self.pid)
            self._silent = 0.0

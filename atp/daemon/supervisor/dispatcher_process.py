"""The dispatcher as its supervisor sees it: the process, the channel, its last messages."""

from .. import journal
from ..shared import messages
from ..shared.channel import Closed
from ..system import processes
from ..system.processes import uptime

# A dispatcher that dies within this many seconds is started again ever more slowly.
QUICK_DEATH = 5.0
SLOWEST_RESTART = 10.0
MOST_UNREAD = 8


class DispatcherProcess:
    """One dispatcher after the other; ``pid`` is None while there is none.

    ``identities`` are uuids under which something may still be held,
    ``lease_until`` is how long the workers may live on the uptime clock,
    ``request`` is what the daemon's row asked for last, ``stop`` says why the
    dispatcher wants the daemon to stop.
    """

    def __init__(self):
        self.pid = None
        self.channel = None
        self.identities = []
        self.lease_until = None
        self.sign_of_life = 0.0
        # The number of workers that it wants beyond the usual, in the place of paused ones.
        self.spare = 0
        self.request = self.stop = ""
        self._outbox = []
        self._started = self._due = 0.0
        self._quick_deaths = 0

    @property
    def is_due(self):
        """Whether a dispatcher is missing and may be started now."""
        return self.pid is None and uptime() >= self._due

    @property
    def is_reading(self):
        """Whether it reads its messages. Unread messages cost descriptors here."""
        return self.pid is not None and len(self._outbox) < MOST_UNREAD

    def started(self, pid, channel):
        """A dispatcher has been started."""
        self.pid, self.channel = pid, channel
        self._started = self.sign_of_life = uptime()
        self.lease_until = None
        self.spare = 0

    def died(self, status):
        """Take note of its death: the next one is due at once, or later if they keep dying."""
        quick = uptime() - self._started < QUICK_DEATH
        self._quick_deaths = self._quick_deaths + 1 if quick else 0
        pause = 0.0
        if self._quick_deaths > 1:
            pause = min(2.0 ** (self._quick_deaths - 2), SLOWEST_RESTART)
        self._due = uptime() + pause
        how = processes.describe_status(status)
        journal.dispatcher_died(pid=self.pid, how=how, seconds=pause)
        self.pid = None
        self.close()

    def close(self):
        """Close the channel, and the ends that were still to be passed through it."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None
        for _, ends in self._outbox:
            for end in ends:
                end.close()
        self._outbox = []

    def receive(self):
        """Take note of all that it says; yields the messages that ask something of a worker."""
        while self.channel is not None:
            try:
                message, _ = self.channel.receive(wait=False)
            except (BlockingIOError, Closed):
                return
            self.sign_of_life = uptime()
            match message:
                case messages.LeaseRenewed():
                    self.lease_until = message.until
                case messages.Joining():
                    if message.identity not in self.identities:
                        self.identities.append(message.identity)
                case messages.Joined():
                    self.identities = list(message.identities)
                case messages.SpareWanted():
                    self.spare = message.count
                case messages.Ordered():
                    self.request = message.request
                case messages.StopWanted():
                    self.stop = message.why
                case messages.Alive():
                    pass
                case _:
                    yield message

    def send(self, message, ends=()):
        """Send a message with the ends that go with it; later, if the dispatcher is not reading."""
        self._outbox.append((message, ends))
        self.flush()

    def flush(self):
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

    def end_if_silent(self, limit):
        """Kill a dispatcher that has given no sign of life for so long."""
        silent = uptime() - self.sign_of_life
        if self.pid is not None and silent > limit:
            journal.dispatcher_hung(pid=self.pid, seconds=silent)
            processes.kill(self.pid)
            self.sign_of_life = uptime()

"""The queue once more, in plain Python: what every store should do.

Written from the house plan, and on purpose not from :mod:`atp.states`: where the two
differ, one of them is wrong. It knows no database and no clock. A time that the store
takes from its own clock is not foreseen but read: until then it is a :class:`Pending`.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

MAX_RESTARTS = 1
UNEXPLAINED_LOSSES = 10

HELD = ("SCHEDULED", "RUNNING", "PAUSED")
ENDED = ("FINISHED", "FAILED")

# What a holder may do: where it leads, and whether the Task goes back to the queue.
MOVES = {
    ("SCHEDULED", "start"): "RUNNING",
    ("RUNNING", "pause"): "PAUSED",
    ("PAUSED", "resume"): "RUNNING",
    ("RUNNING", "finish"): "FINISHED",
    ("RUNNING", "fail"): "FAILED",
    ("RUNNING", "retry"): "ACCEPTED",
    ("RUNNING", "defer"): "ACCEPTED",
    **{(state, "release"): "ACCEPTED" for state in HELD},
    **{(state, "expire"): "ACCEPTED" for state in HELD},
}


@dataclass(frozen=True)
class Pending:
    """A time that was so long after the store's now when it was written."""

    delay: timedelta = timedelta()


@dataclass
class Item:
    """An Instance with its Task; ``holder`` names a daemon, ``history`` tells its transitions."""

    key: int
    type: str
    priority: int = 0
    due: datetime | Pending = Pending()
    identifier: str | None = None
    start_before: datetime | None = None
    state: str = "ACCEPTED"
    reason: str = ""
    holder: str | None = None
    attempt: int = 0
    restarts: int = 0
    retries: int = 0
    lost: int = 0
    request: str = ""
    was_started: bool = False
    progress: float | None = None
    has_response: bool = False
    said: list = field(default_factory=list)
    history: list = field(default_factory=lambda: [("enqueue", "ACCEPTED", 0)])

    @property
    def is_live(self):
        return self.state not in ENDED

    @property
    def waits(self):
        return self.state == "ACCEPTED"

    def is_late(self, now):
        return self.waits and self.start_before is not None and self.start_before <= now

    def is_held(self, holder, attempt):
        """The fence."""
        return self.holder == holder and self.attempt == attempt

    def claim(self, holder):
        self.holder, self.request = holder, ""
        self.attempt += 1
        self._log("claim", "SCHEDULED")

    def by_holder(self, holder, attempt, event, *, started=False, reason="", delay=None):
        """An event that somebody records as the holder; returns whether it is accepted."""
        if not self.is_held(holder, attempt):
            return False
        if started:
            if self.state != "SCHEDULED" or ("RUNNING", event) not in MOVES:
                return False
            self.move("start")
        elif (self.state, event) not in MOVES:
            return False
        self.move(event, reason, delay)
        return True

    def move(self, event, reason="", delay=None):
        was = self.state
        self.retries += event == "retry"
        self._log(event, MOVES[was, event])
        if event == "start":
            self.was_started, self.progress = True, None
        if self.state == "ACCEPTED":
            self._go_back(delay)
        elif self.state in ENDED:
            self.holder = None
            self.reason = reason
            self.progress = 1.0 if self.state == "FINISHED" else self.progress
        if event == "expire":
            self.lost += 1
            self.restarts += was != "SCHEDULED"
        if self.waits and self.request == "cancel":
            self._fail("CANCELLED")
        elif event == "expire":
            self._give_up_if_stale()

    def _go_back(self, delay):
        self.holder = None
        self.due = self.due if delay is None else Pending(delay)
        self.request = "" if self.request == "release" else self.request
        if self.was_started:
            self.start_before = None

    def _give_up_if_stale(self):
        if self.restarts > MAX_RESTARTS or self.lost > MAX_RESTARTS + UNEXPLAINED_LOSSES:
            self._fail("STALE")

    def by_anyone(self, event, reason=""):
        """An event that needs no hold; returns whether it is accepted."""
        if event == "fail" and self.waits:
            self._fail(reason)
        elif event == "redrive" and self.state == "FAILED":
            self.restarts = self.retries = self.lost = 0
            self.due, self.start_before = Pending(), None
            self.reason = self.request = ""
            self._log("redrive", "ACCEPTED")
        else:
            return False
        return True

    def ask(self, request):
        """Ask its holder for something; returns whether somebody was asked."""
        if self.holder is None or self.request == "cancel":
            return False
        self.request = request
        return True

    def cancel(self):
        """Returns what became of it: a field of the store's answer, or None."""
        if self.waits:
            self._fail("CANCELLED")
            return "failed"
        if self.is_live:
            return "asked" if self.ask("cancel") else "before"
        return None

    def _fail(self, reason):
        self._log("fail", "FAILED")
        self.reason = reason

    def _log(self, event, state):
        self.state = state
        self.history.append((event, state, self.attempt))


class Model:
    """All Items by key, and the daemons that have a row: by name, whether their lease is over."""

    def __init__(self):
        self.items = {}
        self.daemons = {}

    def live(self):
        return [item for item in self.items.values() if item.is_live]

    def held_by(self, name):
        return [item for item in self.items.values() if item.holder == name and item.is_live]

    def lost_daemons(self, besides=None):
        return [name for name, over in self.daemons.items() if over and name != besides]

    def identified(self, type, identifier):
        """The Item of this Type and identifier, or None."""
        found = (i for i in self.items.values() if (i.type, i.identifier) == (type, identifier))
        return None if identifier is None else next(found, None)

    def due(self, type, now):
        """The Items of a Type that are due and can still be started in time, in order (G8)."""
        due = [
            item
            for item in self.items.values()
            if item.type == type and item.waits and item.due <= now and not item.is_late(now)
        ]
        return sorted(due, key=lambda item: (-item.priority, item.due, item.key))

    def rejoin(self, old, new, holding):
        """A daemon takes another identity; returns what it keeps and what it loses."""
        kept, lost = [], []
        for item in self.held_by(old) if old in self.daemons else []:
            if (item.key, item.attempt) in holding:
                item.holder = new
                kept.append(item)
            else:
                item.move("expire")
                lost.append(item)
        self.daemons.pop(old, None)
        self.daemons[new] = False
        return kept, lost

    def leave(self, name):
        if self.daemons.pop(name, None) is not None:
            for item in self.held_by(name):
                item.by_holder(name, item.attempt, "release")

    def forget_daemons(self, besides):
        """Those that are lost and hold nothing any more have no row after a sweep."""
        for name in self.lost_daemons(besides):
            if not self.held_by(name):
                del self.daemons[name]

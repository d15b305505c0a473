"""Evidence made by hand, for the tests of the judge: whole at first, then spoilt."""

from dataclasses import replace

from atp.states import Event, State

from .evidence import DaemonStory, Entry, Evidence, Story
from .feed import Enqueued, Fate
from .judge import CHECKS, judged
from .kinds import ROW
from .member import Hit
from .record import Line, executions

HERE, THERE = 100, 200
TARGETS = {
    Event.ENQUEUE: State.ACCEPTED,
    Event.CLAIM: State.SCHEDULED,
    Event.START: State.RUNNING,
    Event.PAUSE: State.PAUSED,
    Event.RESUME: State.RUNNING,
    Event.EXPIRE: State.ACCEPTED,
    Event.RETRY: State.ACCEPTED,
    Event.RELEASE: State.ACCEPTED,
    Event.FINISH: State.FINISHED,
    Event.FAIL: State.FAILED,
}


class Forger:
    """Writes one Instance's log and record as they should be; ``evidence()`` puts all together."""

    def __init__(self, uuid="one", type="chaos.sleep", **facts):
        self.uuid, self.type, self.facts = uuid, type, facts
        self.log, self.lines, self.hits = [], [], []
        self.attempt, self.clock = 0, 10.0
        self.losses = self.unstarted = self.retries = 0
        self.answer = None
        self.state = ""
        self.move(Event.ENQUEUE)

    def _tick(self):
        self.clock += 0.01
        return self.clock

    def move(self, *events, daemon=HERE, **more):
        """Log events as the daemon with this pid would."""
        for event in events:
            self.attempt += event == Event.CLAIM
            self.state = TARGETS[event]
            entry = {"event": event, "state": self.state, "attempt": self.attempt}
            who = f"host:{daemon} worker 0" if daemon else ""
            self.log.append(Entry(**entry, time=self._tick(), who=who, **more))

    def say(self, event, attempt=None, pid=1, **more):
        """Write a line as a handler would."""
        attempt = attempt or self.attempt
        entry = {"event": event, "time": self._tick(), "instance": self.uuid, "pid": pid}
        self.lines.append(Line(place=0, attempt=attempt, **entry, **more))

    def begin(self, daemon=HERE, pid=1):
        """Claim, start, and be at work; a while after what was before."""
        self.clock += 2
        self.move(Event.CLAIM, Event.START, daemon=daemon)
        self.say("start", pid=pid)
        self.say("tick", pid=pid)
        return self

    def finish(self, daemon=HERE, pid=1):
        """Return, and be recorded."""
        nonce = f"nonce {self.attempt}"
        self.say("end", outcome="returned", nonce=nonce, pid=pid)
        self.answer = {"attempt": self.attempt, "nonce": nonce}
        self.move(Event.FINISH, daemon=daemon)
        return self

    def lose(self, daemon=HERE, pid=1, *, hit=True):
        """Be killed, and expire."""
        if hit:
            at = self._tick()
            self.hits.append(Hit(name="kill_worker", daemon=daemon, pid=pid, since=at, until=at))
        self.move(Event.EXPIRE, daemon=daemon, message="its worker died by SIGKILL")
        self.losses += 1
        return self

    def story(self):
        facts = {"state": self.state, "attempt": self.attempt, "retries": self.retries}
        return Story(
            uuid=self.uuid,
            identifier=self.uuid,
            type=self.type,
            answer=self.answer,
            log=tuple(self.log),
            **facts | {"restarts": self.losses, "lost": self.losses + self.unstarted} | self.facts,
        )


def evidence(*forgers, lines=None, **more):
    """Return the Evidence of these; ``lines`` are those of the record if not in their order."""
    rows = {f.uuid: [f.attempt] for f in forgers if f.type == ROW and f.state == State.FINISHED}
    lines = lines or [line for forger in forgers for line in forger.lines]
    placed = [replace(line, place=place) for place, line in enumerate(lines, 1)]
    started = {"fact": "daemon_started", "time": 1.0}
    ended = {"asked_to_leave": 90.0, "left": 91.0, "status": 0, "facts": (started,)}
    return Evidence(
        **{
            "stories": [forger.story() for forger in forgers],
            "executions": executions(placed),
            "rows": rows,
            "enqueued": {f.uuid: Enqueued(f.uuid, f.type, Fate.COMMITTED) for f in forgers},
            "hits": [hit for forger in forgers for hit in forger.hits],
            "daemons": [DaemonStory(pid=pid, **ended) for pid in (HERE, THERE)],
            **more,
        }
    )


def found(given):
    """Return the words of every breach, by the name of its check."""
    names = {promise: check.__name__ for promise, check in CHECKS.items()}
    return {
        names[verdict.promise]: [breach.words for breach in verdict.breaches]
        for verdict in judged(given)
        if not verdict.is_kept
    }


def only(given, check):
    """Return the words of the breaches, which must all be of this check."""
    by_check = found(given)
    assert set(by_check) == {check.__name__}
    return by_check[check.__name__]


def whole():
    """One that was lost once on one daemon, and finished on another."""
    return Forger().begin().lose().begin(THERE, pid=2).finish(THERE, pid=2)


def spoilt(forger, number, **changes):
    """Change one entry of a log."""
    forger.log[number] = replace(forger.log[number], **changes)
    return forger

"""The judge finds broken promises, because a check that cannot fail would be worthless.

Each test makes the evidence by hand, at first correct, then with one fault.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from atp import states
from atp.commands import CANCEL
from atp.models import Kind
from atp.states import Event, Reason, State

from . import judge
from .background import WHO
from .evidence import DaemonStory, Entry, Evidence, Story
from .feed import Fate
from .fleet import Hit
from .kinds import ROW
from .operators import Asked
from .record import Line, executions

HERE, THERE = 100, 200


class Forger:
    """Writes the log and the record of one Instance; ``evidence()`` combines several."""

    def __init__(self, uuid="one", type="chaos.sleep", **facts):
        self.uuid, self.type, self.facts = uuid, type, facts
        self.log, self.lines, self.hits = [], [], []
        self.attempt, self.losses, self.clock = 0, 0, 10.0
        self.state = self.answer = None
        self.move(Event.ENQUEUE)

    def _tick(self):
        self.clock += 0.01
        return self.clock

    def move(self, *events, daemon=HERE, **more):
        """Log events as the daemon with this pid would."""
        for event in events:
            self.attempt += event == Event.CLAIM
            self.state = states.transition(event, self.state).target
            entry = {"event": event, "state": self.state, "attempt": self.attempt}
            who = f"host:{daemon} worker 0" if daemon else ""
            self.log.append(Entry(**entry, time=self._tick(), who=who, **more))

    def say(self, event, attempt=None, pid=1, **more):
        """Write a line to the record as a handler would."""
        attempt = attempt or self.attempt
        entry = {"event": event, "time": self._tick(), "instance": self.uuid, "pid": pid}
        self.lines.append(Line(place=0, attempt=attempt, **entry, **more))

    def begin(self, daemon=HERE, pid=1):
        """Claim and start the Instance, and work, two seconds after the previous entry."""
        self.clock += 2
        self.move(Event.CLAIM, Event.START, daemon=daemon)
        self.say("start", pid=pid)
        self.say("tick", pid=pid)
        return self

    def finish(self, daemon=HERE, pid=1):
        """Return from the handler and record the end."""
        nonce = f"nonce {self.attempt}"
        self.say("end", outcome="returned", nonce=nonce, pid=pid)
        self.answer = {"attempt": self.attempt, "nonce": nonce}
        self.move(Event.FINISH, daemon=daemon)
        return self

    def lose(self, daemon=HERE, pid=1, *, hit=True):
        """Kill the worker and let the attempt expire."""
        if hit:
            at = self._tick()
            self.hits.append(Hit(name="kill_worker", daemon=daemon, pid=pid, since=at, until=at))
        self.move(Event.EXPIRE, daemon=daemon, message="its worker died by SIGKILL")
        self.losses += 1
        return self

    def story(self):
        story = Story(
            uuid=self.uuid,
            identifier=self.uuid,
            type=self.type,
            state=self.state,
            attempt=self.attempt,
            restarts=self.losses,
            lost=self.losses,
            answer=self.answer,
            log=tuple(self.log),
        )
        return replace(story, **self.facts)


def evidence(*forgers, lines=None, **more):
    """Return the Evidence of these Instances; ``lines`` replaces the lines of the record."""
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
            "enqueued": {f.uuid: Fate.COMMITTED for f in forgers},
            "hits": [hit for forger in forgers for hit in forger.hits],
            "daemons": [DaemonStory(pid=pid, **ended) for pid in (HERE, THERE)],
            **more,
        }
    )


def found(given):
    """Return the messages of all breaches, by the name of the check."""
    told = {check.__name__: check(given) for check in judge.CHECKS.values()}
    words = {name: [breach.words for breach in breaches] for name, breaches in told.items()}
    return {name: each for name, each in words.items() if each}


def whole():
    """Return an Instance that was lost by one daemon and finished on another."""
    return Forger().begin().lose().begin(THERE, pid=2).finish(THERE, pid=2)


def spoilt(forger, number, **changes):
    """Change one entry of the log of a forger."""
    forger.log[number] = replace(forger.log[number], **changes)
    return forger


def is_kept(*forgers, **more):
    assert found(evidence(*forgers, **more)) == {}


def is_told(check, words, *forgers, **more):
    """Assert that only this check finds breaches, and that the first one has these words."""
    by_check = found(evidence(*forgers, **more))
    assert set(by_check) == {check.__name__}
    assert words in by_check[check.__name__][0]
    return by_check[check.__name__]


def hit_at(name, since, until, daemon=HERE, pid=1, **more):
    return Hit(name=name, daemon=daemon, pid=pid, since=since, until=until, **more)


def test_judge_accepts_intact_evidence():
    """Log messages without an event may stand anywhere in the log."""
    is_kept(whole(), Forger("two", "chaos.short").begin().finish())
    forger = whole()
    message = replace(forger.log[1], event="", state="", message="written too late", attempt=1)
    forger.log = [message, *(entry for each in forger.log for entry in (each, message))]
    is_kept(forger)


def test_judge_finds_lost_and_never_enqueued_instances():
    """The evidence breaks G1 or G2."""
    gone = {"one": Fate.COMMITTED, "gone": Fate.COMMITTED, "who knows": Fate.UNKNOWN}
    for enqueued, words in (
        (gone, "gone was committed, and is not there"),
        ({"one": Fate.ROLLED_BACK}, "one was rolled back, and is there"),
        ({}, "nobody has enqueued it"),
    ):
        assert len(is_told(judge.lost, words, whole(), enqueued=enqueued)) == 1
    ghost = evidence(whole()).executions
    ghost["ghost"] = ghost["one"]
    is_told(judge.lost, "was executed, and is not there", whole(), executions=ghost)
    is_told(judge.lost, "has come to no end: RUNNING", Forger(has_task=True).begin())
    is_told(judge.lost, "without an Instance: 1", whole(), strange_tasks=1)
    forger = whole()
    forger.facts["has_task"] = True
    is_told(judge.lost, "FINISHED, Task rows: 1", forger)
    assert "RUNNING, Task rows: 0" in found(evidence(Forger().begin()))["lost"]


def test_judge_finds_overlapping_attempts():
    """The order of the lines and their times are both checked (G3)."""
    words, forger = "attempt 2 began before the end of 1", whole()
    start, tick, second, *rest = forger.lines
    is_told(judge.overlaps, words, forger, lines=[start, second, *rest, tick])
    forger.lines[1] = replace(tick, time=second.time + 0.005)
    is_told(judge.overlaps, words, forger)
    forger = whole()
    forger.say("child", attempt=1, pid=77)  # one that was left behind
    assert len(is_told(judge.overlaps, words, forger)) == 2
    # A long attempt is held against all that begin before its end.
    forger = Forger().begin().lose().begin(pid=2).lose(pid=2).begin(pid=3).finish(pid=3)
    forger.say("tick", attempt=1)
    assert len(is_told(judge.overlaps, words, forger)) == 4
    forger = Forger().begin()
    forger.say("start", pid=2)
    is_told(judge.overlaps, "attempt 1 was entered 2 times", forger.finish())


def test_judge_finds_logs_with_a_missing_repeated_or_untrue_entry():
    """An entry is missing, is there twice, or records something untrue (G6)."""
    for number, told in (
        (0, "claim from None"),
        (1, "start from ACCEPTED"),
        (2, "restarts is 1, by the log 0"),  # before it was started, nothing is charged
        (3, "claim from RUNNING"),
        (5, "finish from SCHEDULED"),
        (6, "the log ends in RUNNING"),
    ):
        forger = whole()
        del forger.log[number]
        assert told in found(evidence(forger))["illegal"][0].replace("State.", "")
    for number in range(7):
        forger = whole()
        forger.log.insert(number, forger.log[number])
        assert "illegal" in found(evidence(forger))
    for name in ("attempt", "restarts", "retries", "lost"):
        forger = whole()
        forger.facts[name] = 3
        assert any(told.startswith(f"{name} is 3") for told in found(evidence(forger))["illegal"])
    assert found(evidence(spoilt(whole(), 5, attempt=1)))["illegal"]
    is_told(judge.illegal, "is logged as to PAUSED", spoilt(whole(), 5, state="PAUSED"))
    forger = whole()
    forger.say("start", attempt=9)
    is_told(judge.illegal, "attempt 9 was executed, and never claimed", forger)


def test_judge_finds_impossible_times():
    for number, by in ((4, -5), (5, +5), (6, -5)):
        forger = whole()
        forger = spoilt(forger, number, time=forger.log[number].time + by)
        assert "untrue" in found(evidence(forger))


def test_judge_finds_results_written_after_the_lease_was_lost():
    """The evidence breaks G4."""
    for answer in ({"attempt": 1, "nonce": "nonce 1"}, {"attempt": 2, "nonce": "made up"}):
        forger = whole()
        forger.answer = answer
        is_told(judge.stale_results, "has the response", forger)
    forger = whole()
    forger.lines = [line for line in forger.lines if line.event != "end"]
    is_told(judge.stale_results, "finished by attempt 2, which did not return", forger)
    forger = spoilt(whole(), -1, who=f"host:{HERE} worker 0")
    is_told(judge.stale_results, "finish of attempt 2", forger)


def given_up(losses, hits, **facts):
    """Return an Instance that was lost and hit this many times and then given up."""
    forger = Forger(reason=Reason.STALE, **facts)
    for number in range(losses):
        forger.begin().lose(hit=number < hits)
    forger.move(Event.FAIL, message="given up")
    return forger


def test_judge_finds_exceeded_and_unspent_restart_budgets():
    """An Instance must not exceed its budget, nor be given up before (G5)."""
    is_kept(given_up(4, 4))
    told = is_told(
        judge.undeserved,
        "attempt 4 was lost while running, though nothing was done to it",
        given_up(4, 3),
    )
    assert told[1] == "STALE, though it was hit only 3 times"
    assert found(evidence(given_up(5, 5)))["beyond_budget"]
    is_told(judge.gave_up_early, "STALE with {'restarts': 3, 'lost': 3,", given_up(3, 3))
    forger = Forger(type="chaos.fail", max_retries=1, reason=Reason.ERROR).begin()
    forger.say("end", outcome="ValueError")
    forger.move(Event.FAIL)
    is_told(judge.gave_up_early, "ERROR after 0 of 1 retries", forger)
    forger = Forger(type="chaos.retry", max_retries=0, retries=1)
    forger.begin().move(Event.RETRY)
    is_told(judge.beyond_budget, "retries: 1 of 0", forger.begin().finish())


def test_judge_requires_a_cause_for_each_lost_attempt():
    """Neither a statement of the daemon nor a held lock is a sufficient cause (G5, G11)."""
    words = "though nothing was done to it"

    def lost():
        return Forger().begin().lose(hit=False)

    at = lost().clock
    for name, daemon in (("kill_dispatcher", HERE), ("stop_dispatcher", HERE)):
        is_kept(lost().begin().finish(), hits=[hit_at(name, at, at, daemon, 99)])
    for name, daemon in (
        ("kill_worker", HERE),  # that of another worker
        ("kill_dispatcher", THERE),
        ("terminate_backend", 0),
        ("restart_database", 0),
        ("stop_worker", HERE),
    ):
        hits = [hit_at(name, at, at, daemon, 99)]
        is_told(judge.undeserved, words, lost().begin().finish(), hits=hits)
    given = evidence(lost().begin().finish())
    fact = {"fact": "lease_over", "time": at, "message": "no renewal"}
    given.daemons[0] = replace(given.daemons[0], facts=(fact,))
    given.hits = [Hit(name="open_transaction", since=at - 5, until=at)]
    assert words in found(given)["undeserved"][0]
    given.outages = [(at - 5, at - 1)]
    assert "undeserved" not in found(given)


def test_judge_finds_an_attempt_that_was_handed_back_after_it_had_returned():
    """Such a hand-back is accepted right after a fault (G10, G11)."""
    forger = Forger().begin()
    forger.say("end", outcome="returned", nonce="nonce 1")
    forger.clock += 3
    hit = hit_at("stop_dispatcher", forger.clock - 1, forger.clock - 1, pid=9)
    forger.move(Event.RELEASE)
    forger.begin().finish()
    is_told(judge.thrown_away, "was handed back 3.0 s after it had returned", forger)
    is_kept(forger, hits=[hit])


def test_judge_finds_an_instance_with_an_end_that_its_type_cannot_have():
    forger = Forger(type="chaos.fatal", max_retries=3).begin().finish()
    is_told(judge.wrong_ends, "chaos.fatal ended FINISHED ", forger)


def test_judge_finds_daemons_that_failed():
    """The evidence breaks G10 or G11."""
    first, second = evidence(whole()).daemons
    for changes in (
        {"status": None},
        {"asked_to_leave": None},
        {"status": 1},
        {"facts": ({"fact": "dispatcher_died", "pid": 5, "message": "died by SIGSEGV"},)},
        {"facts": ({"fact": "worker_died", "pid": 5, "message": "exited with status 1"},)},
        {"facts": ({"fact": "not a fact", "message": "Traceback"},)},
    ):
        is_told(judge.weak_daemons, "", whole(), daemons=[replace(first, **changes), second])
    # One that had only just been started may end by the signal.
    is_kept(whole(), daemons=[replace(first, facts=(), status=-15), second])
    killed = DaemonStory(pid=HERE, killed=50.0, status=-9)
    is_kept(whole(), daemons=[killed])
    words = "had ended with status 1 when it was to be killed"
    is_told(judge.weak_daemons, words, whole(), daemons=[replace(killed, status=1)])


def test_judge_finds_daemons_that_rejoin_too_slowly():
    given = evidence(whole(), outages=[(30.0, 31.0)])
    for back, told in ((31.5, set()), (40.0, {"slow_returns"}), (None, {"slow_returns"})):
        joined = {"fact": "joined", "time": 5.0}, {"fact": "rejoined", "time": back}
        facts = joined if back else joined[:1]
        given.daemons[0] = replace(given.daemons[0], facts=facts)
        assert set(found(given)) == told


def test_judge_accepts_an_undelivered_end_only_if_a_lock_lasted_long_enough():
    """The lock must have lasted long enough, and the daemon must have reported the end (G10)."""
    forger = Forger().begin().lose(hit=False)
    checks = {"undeserved", "weak_daemons"}
    for facts, until, told in (
        (["undelivered"], 92.0, set()),
        (["undelivered"], 88.0, checks),
        ([], 92.0, checks),
    ):
        lock = Hit(name="open_transaction", instance=forger.uuid, since=80.0, until=until)
        said = tuple({"fact": name, "time": 1.0} for name in ("daemon_started", *facts))
        leaving = DaemonStory(pid=HERE, asked_to_leave=89.0, left=91.0, status=1, facts=said)
        assert checks & found(evidence(forger, hits=[lock], daemons=[leaving])).keys() == told


# Cancels


def ask(forger):
    facts = {"event": "", "kind": Kind.ASK, "detail": CANCEL, "attempt": forger.attempt, "who": WHO}
    forger.log.append(Entry(**facts, time=forger._tick()))
    return forger


def cancelled():
    """Return an Instance that was cancelled while it ran."""
    forger = ask(Forger(reason=Reason.CANCELLED).begin())
    forger.say("end", outcome="Interrupted")
    forger.move(Event.FAIL, message=f"cancelled by {WHO}")
    return forger


def asked(*forgers, is_sure=True):
    return {f.uuid: Asked(at=0.0, is_sure=is_sure) for f in forgers}


def test_judge_accepts_each_legal_outcome_of_a_cancel_request():
    waiting = Forger("two", reason=Reason.CANCELLED)
    waiting.move(Event.FAIL, daemon=None, message="cancelled")
    waiting.log[-1] = replace(waiting.log[-1], who=WHO)
    in_time = ask(Forger("three").begin()).finish()
    given = (cancelled(), waiting, in_time)
    is_kept(*given, cancels=asked(*given))
    unknown = Forger("four").begin().finish()
    is_kept(unknown, cancels=asked(unknown, is_sure=False))


def test_judge_finds_each_illegal_outcome_of_a_cancel_request():
    is_told(judge.cancelled, "is CANCELLED, and nobody has asked for it", cancelled())
    done = Forger().begin().finish()
    is_told(judge.cancelled, "its log does not say so", done, cancels=asked(done))
    twice = ask(ask(Forger().begin())).finish()
    is_told(judge.cancelled, "was cancelled 2 times", twice, cancels=asked(twice))
    for event in (Event.RELEASE, Event.RETRY):
        again = ask(Forger(retries=int(event == Event.RETRY), max_retries=1).begin())
        again.say("end", outcome="Interrupted")
        again.move(event)
        again.begin().finish()
        words = "was claimed after it had been cancelled"
        is_told(judge.cancelled, words, again, cancels=asked(again))
    forger = cancelled()
    forger.clock += 1
    forger.say("tick")
    is_told(judge.cancelled, "went on", forger, cancels=asked(forger))
    forger = ask(Forger().begin())
    forger.clock += 20
    forger.finish()
    is_told(judge.cancelled, "went on 20", forger, cancels=asked(forger))
    stop = hit_at("stop_worker", forger.clock - 19, forger.clock)
    is_kept(forger, cancels=asked(forger), hits=[stop])


@pytest.mark.parametrize("vendor", ["sqlite", "postgresql"])
def test_judge_excuses_a_late_cancel_by_a_stopped_daemon_only_on_sqlite(vendor, monkeypatch):
    monkeypatch.setattr(judge, "connection", SimpleNamespace(vendor=vendor))
    forger = ask(Forger().begin())
    forger.hits.append(hit_at("stop_dispatcher", forger.clock, forger.clock + 9, THERE))
    forger.clock += 7
    given = evidence(forger.finish(), cancels=asked(forger))
    assert bool(found(given)) == (vendor == "postgresql")


# Pauses, rows and limits


def paused(type="chaos.sleep", at_work="tick"):
    """Return an Instance that is paused for two seconds and can work meanwhile."""
    forger = Forger(type=type).begin()
    forger.move(Event.PAUSE)
    forger.clock += 1
    if at_work:
        forger.say(at_work)
    return forger


def go_on(forger):
    forger.clock += 1
    forger.move(Event.RESUME)
    forger.say("tick")
    return forger.finish()


def test_judge_finds_handlers_that_worked_while_their_instance_was_paused():
    """The children of a handler are checked only if its Type can be stopped by a signal.

    A lost attempt is allowed to go on.
    """
    check, words = judge.at_work_while_paused, "attempt 1 was at work while paused"
    is_kept(go_on(paused(at_work="")))
    is_told(check, words, go_on(paused()))
    is_kept(go_on(paused("chaos.family", "child")))
    is_told(check, words, go_on(paused("chaos.still", "child")))
    forger = paused()
    forger.clock += 1
    is_kept(forger.lose().begin(pid=2).finish(pid=2))
    # Who was stopped may go on when let go, whose time is noted only afterwards.
    for let_go, is_broken in ((-1.5, True), (-0.5, False), (0.001, False), (0.5, True)):
        forger = paused("chaos.still")
        tick = forger.clock
        hits = [hit_at("stop_worker", tick - 2, tick + let_go)]
        assert bool(found(evidence(go_on(forger), hits=hits))) == is_broken


def test_judge_finds_missing_and_surplus_rows_of_transactional_types():
    """The evidence breaks G7."""
    forger = Forger(type=ROW).begin().lose().begin(pid=2).finish(pid=2)
    is_kept(forger)
    for there in ([], [1], [1, 2], [2, 2]):
        words = f"FINISHED, with the rows of attempts {there}"
        is_told(judge.not_once, words, forger, rows={"one": there})
    is_told(judge.not_once, "nobody was to leave rows", forger, rows={"one": [2], "two": [1]})
    forger = Forger(type=ROW, reason="ERROR").begin()
    forger.say("end", outcome="OperationalError")
    forger.move(Event.FAIL)
    is_kept(forger)
    is_told(judge.not_once, "FAILED, with the rows of attempts [1]", forger, rows={"one": [1]})


def test_judge_finds_exceeded_limits():
    first, second = (Forger(uuid, type="chaos.alone") for uuid in ("one", "two"))
    second.clock = first.begin().finish().clock
    is_kept(first, second.begin(pid=2).finish(pid=2))
    at_once = [Forger(uuid, type="chaos.alone").begin().finish() for uuid in ("one", "two")]
    is_told(judge.crowded, "2 of chaos.alone executed at once", *at_once)
    is_kept(*(Forger(uuid).begin().finish() for uuid in ("one", "two")))


def test_judge_finds_statistics_that_contradict_the_log():
    counted, recounted = ({"chaos.sleep": {"started": number}} for number in (1, 2))
    words = "chaos.sleep started: 1 counted, 2 in the log"
    is_told(judge.miscounted, words, whole(), counted=counted, recounted=recounted)

"""The judge finds what is broken: a check that cannot fail would be worth nothing."""

from dataclasses import replace

import pytest

from atp.states import Event, Reason, State

from . import health, judge
from .evidence import DaemonStory
from .feed import Enqueued, Fate
from .fleet import Hit
from .forged import HERE, THERE, Forger, evidence
from .judge import CHECKS, judged

FAILED = State.FAILED


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


def test_what_is_whole_is_kept():
    plain = Forger("two", "chaos.short").begin().finish()
    assert found(evidence(whole(), plain)) == {}


def test_messages_are_tolerated_anywhere():
    forger = whole()
    message = replace(forger.log[1], event="", state="", message="written too late", attempt=1)
    forger.log = [message, *(entry for each in forger.log for entry in (each, message))]
    assert found(evidence(forger)) == {}


# Lost (G1, G2)


def test_committed_and_not_there():
    given = evidence(whole())
    given.enqueued["gone"] = Enqueued("gone", "chaos.sleep", Fate.COMMITTED)
    given.enqueued["who knows"] = Enqueued("who knows", "chaos.sleep", Fate.UNKNOWN)
    assert only(given, judge.lost) == ["gone was committed, and is not there"]


def test_rolled_back_and_there():
    given = evidence(whole())
    given.enqueued["one"] = replace(given.enqueued["one"], fate=Fate.ROLLED_BACK)
    assert only(given, judge.lost) == ["one was rolled back, and is there"]


def test_there_and_never_enqueued():
    assert only(evidence(whole(), enqueued={}), judge.lost)


def test_executed_and_not_there():
    given = evidence(whole())
    given.executions["ghost"] = given.executions["one"]
    assert only(given, judge.lost) == ["was executed, and is not there"]


def test_without_an_end():
    forger = Forger(has_task=True).begin()
    assert only(evidence(forger), judge.lost) == ["has come to no end: RUNNING"]


@pytest.mark.parametrize("forger", [Forger().begin(), whole()])
def test_task_row_that_is_missing_or_left(forger):
    is_over = forger.log[-1].event == Event.FINISH
    forger.facts["has_task"] = is_over
    told = f"{forger.log[-1].state}, Task rows: {int(is_over)}"
    assert told in only(evidence(forger), judge.lost)


def test_task_row_of_nobody():
    assert only(evidence(whole(), strange_tasks=1), judge.lost)


# Overlaps (G3)


def test_overlap_by_the_order_of_the_lines():
    """A handler that was at work after another had begun, whatever its clock said."""
    forger = whole()
    lines = forger.lines
    late = next(line for line in lines if line.event == "tick" and line.attempt == 1)
    given = evidence(forger, lines=[*(line for line in lines if line is not late), late])
    assert "attempt 2 began before the end of 1" in only(given, judge.overlaps)[0]


def test_overlap_by_the_clock():
    forger = whole()
    began = next(line for line in forger.lines if line.attempt == 2).time
    forger.lines[1] = replace(forger.lines[1], time=began + 0.005)
    assert "attempt 2 began before the end of 1" in only(evidence(forger), judge.overlaps)[0]


def test_overlap_with_a_child_that_was_left_behind():
    forger = whole()
    forger.say("child", attempt=1, pid=77)
    assert len(only(evidence(forger), judge.overlaps)) == 2


def test_overlap_with_one_that_is_not_the_last_before():
    """A long attempt is held against all that begin before its end."""
    forger = Forger().begin().lose().begin(pid=2).lose(pid=2).begin(pid=3).finish(pid=3)
    forger.say("tick", attempt=1)
    assert len(only(evidence(forger), judge.overlaps)) == 4


def test_attempt_that_was_entered_twice():
    forger = Forger().begin()
    forger.say("start", pid=2)
    assert only(evidence(forger.finish()), judge.overlaps) == ["attempt 1 was entered 2 times"]


# The log (G6)


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (0, "claim from None"),
        (1, "start from State.ACCEPTED"),
        (2, "expire of attempt 1"),
        (3, "claim from State.RUNNING"),
        (5, "finish from State.SCHEDULED"),
        (6, "the log ends in RUNNING"),
    ],
)
def test_missing_entry(number, told):
    forger = whole()
    del forger.log[number]
    words = found(evidence(forger))["illegal"]
    if number == 2:  # an attempt may expire before it was started, but then it is not charged
        assert words == ["restarts is 1, by the log 0"]
    else:
        assert told.replace("State.", "") in words[0].replace("State.", "")


@pytest.mark.parametrize("number", range(7))
def test_doubled_entry(number):
    forger = whole()
    forger.log.insert(number, forger.log[number])
    assert "illegal" in found(evidence(forger))


@pytest.mark.parametrize("name", ["attempt", "restarts", "retries", "lost"])
def test_counter_that_the_log_does_not_bear_out(name):
    forger = whole()
    forger.facts[name] = 3
    assert any(words.startswith(f"{name} is 3") for words in found(evidence(forger))["illegal"])


def test_entry_of_another_attempt_or_state():
    assert found(evidence(spoilt(whole(), 5, attempt=1)))["illegal"]
    assert only(evidence(spoilt(whole(), 5, state="PAUSED")), judge.illegal)


def test_executed_and_never_claimed():
    forger = whole()
    forger.say("start", attempt=9)
    assert only(evidence(forger), judge.illegal) == ["attempt 9 was executed, and never claimed"]


@pytest.mark.parametrize(("number", "by"), [(4, -5), (5, +5), (6, -5)])
def test_time_that_cannot_be(number, by):
    forger = whole()
    forger = spoilt(forger, number, time=forger.log[number].time + by)
    assert "untrue" in found(evidence(forger))


# Late writes (G4)


def test_result_of_a_stale_attempt():
    """The first attempt's answer has come over the second's."""
    forger = whole()
    forger.answer = {"attempt": 1, "nonce": "nonce 1"}
    assert only(evidence(forger), judge.stale_results)


def test_result_that_no_execution_gave():
    forger = whole()
    forger.answer = {"attempt": 2, "nonce": "made up"}
    assert only(evidence(forger), judge.stale_results)


def test_finished_without_an_end():
    forger = whole()
    forger.lines = [line for line in forger.lines if line.event != "end"]
    assert only(evidence(forger), judge.stale_results) == [
        "finished by attempt 2, which did not return"
    ]


def test_finish_by_a_daemon_that_had_not_claimed():
    forger = spoilt(whole(), -1, who=f"host:{HERE} worker 0")
    assert "finish of attempt 2" in only(evidence(forger), judge.stale_results)[0]


# Budgets, and what was charged (G5, G11)


def given_up(losses, hits, **facts):
    """One that was lost so often, and hit so often, and given up."""
    forger = Forger(reason=Reason.STALE, **facts)
    for number in range(losses):
        forger.begin().lose(hit=number < hits)
    forger.move(Event.FAIL, message="given up")
    return forger


def test_deserved_stale():
    assert found(evidence(given_up(4, 4))) == {}


def test_undeserved_stale():
    """Four losses, but three hits: it should be running still."""
    words = only(evidence(given_up(4, 3)), judge.undeserved)
    assert words[0].startswith("attempt 4 was lost while running, though nothing was done to it")
    assert words[1] == "STALE, though it was hit only 3 times"


def test_given_up_too_early_or_too_late():
    early = given_up(3, 3)
    early.facts["restarts"] = 3
    assert found(evidence(given_up(5, 5)))["beyond_budget"]
    assert "beyond_budget" not in found(evidence(early))


def test_retries_beyond_the_budget():
    forger = Forger(type="chaos.retry", max_retries=0, retries=1)
    forger.begin().move(Event.RETRY)
    assert only(evidence(forger.begin().finish()), judge.beyond_budget) == ["retries: 1 of 0"]


@pytest.mark.parametrize(
    ("name", "daemon", "is_enough"),
    [
        ("kill_worker", HERE, False),  # that of another worker
        ("kill_dispatcher", HERE, True),
        ("kill_dispatcher", THERE, False),
        ("terminate_backend", 0, False),
        ("restart_database", 0, False),
        ("stop_worker", HERE, False),
        ("stop_dispatcher", HERE, True),
    ],
)
def test_loss_needs_a_cause(name, daemon, is_enough):
    forger = Forger().begin(pid=1).lose(hit=False)
    at = forger.clock
    hit = Hit(name=name, daemon=daemon, pid=99, since=at, until=at)
    given = evidence(forger.begin().finish(), hits=[hit])
    assert (found(given) == {}) == is_enough


def test_loss_is_explained_by_what_its_daemon_said():
    forger = Forger().begin().lose(hit=False)
    fact = {"fact": "lease_over", "time": forger.clock, "message": "no renewal"}
    given = evidence(forger.begin().finish())
    assert "though nothing was done to it" in only(given, judge.undeserved)[0]
    given.daemons[0] = replace(given.daemons[0], facts=(fact,))
    assert found(given) == {}


# Ends, and daemons


def test_end_that_its_kind_cannot_have():
    forger = Forger(type="chaos.fatal", max_retries=3).begin().finish()
    assert only(evidence(forger), judge.wrong_ends) == ["chaos.fatal ended FINISHED "]


@pytest.mark.parametrize(
    "changes",
    [
        {"status": None},
        {"asked_to_leave": None},
        {"status": 1},
        {"facts": ({"fact": "dispatcher_died", "pid": 5, "message": "died by SIGSEGV"},)},
        {"facts": ({"fact": "worker_died", "pid": 5, "message": "exited with status 1"},)},
        {"facts": ({"fact": "not a fact", "message": "Traceback"},)},
    ],
)
def test_daemon_that_fails(changes):
    given = evidence(whole())
    given.daemons[0] = replace(given.daemons[0], **changes)
    assert only(given, health.weak_daemons)


def test_daemon_that_was_killed_may_have_any_status():
    daemon = DaemonStory(pid=HERE, killed=50.0, status=-9)
    assert found(evidence(whole(), daemons=[daemon])) == {}


def test_daemon_that_does_not_recover():
    given = evidence(whole(), weaknesses=["daemon 100 has 1 dispatchers and 1 workers"])
    assert only(given, health.weak_daemons)


@pytest.mark.parametrize(("back", "is_kept"), [(31.5, True), (40.0, False), (None, False)])
def test_daemon_that_is_slow_to_come_back(back, is_kept):
    given = evidence(whole(), outages=[(30.0, 31.0)])
    joined = [{"fact": "joined", "time": 5.0}]
    if back is not None:
        joined.append({"fact": "rejoined", "time": back})
    given.daemons[0] = replace(given.daemons[0], facts=tuple(joined))
    assert (found(given) == {}) == is_kept
    if not is_kept:
        assert only(given, health.slow_returns)

"""The judge finds late results, undeserved charges, wrong ends and failing daemons."""

from dataclasses import replace

import pytest

from atp.states import Event, Reason

from . import health, judge
from .evidence import DaemonStory
from .forged import HERE, THERE, Forger, evidence, found, only, spoilt, whole
from .member import Hit

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
    assert found(evidence(given_up(5, 5)))["beyond_budget"]
    assert only(evidence(given_up(3, 3)), judge.gave_up_early) == [
        "STALE with {'restarts': 3, 'lost': 3, 'max_restarts': 3}"
    ]


def test_an_error_before_the_last_retry():
    forger = Forger(type="chaos.fail", max_retries=1, reason=Reason.ERROR).begin()
    forger.say("end", outcome="ValueError")
    forger.move(Event.FAIL)
    assert only(evidence(forger), judge.gave_up_early) == ["ERROR after 0 of 1 retries"]


@pytest.mark.parametrize("is_hit", [True, False])
def test_what_has_returned_and_is_handed_back(is_hit):
    forger = Forger().begin()
    forger.say("end", outcome="returned", nonce="nonce 1")
    forger.clock += 3
    if is_hit:
        at = forger.clock - 1
        hit = Hit(name="stop_dispatcher", daemon=HERE, pid=9, since=at, until=at)
        forger.hits.append(hit)
    forger.move(Event.RELEASE)
    given = evidence(forger.begin().finish())
    if is_hit:
        assert found(given) == {}
    else:
        [told] = only(given, judge.thrown_away)
        assert "attempt 1 was handed back 3.0 s after it had returned" in told


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
    at = forger.clock - 5
    given = evidence(forger.begin().finish())
    assert "though nothing was done to it" in only(given, judge.undeserved)[0]
    given.daemons[0] = replace(given.daemons[0], facts=(fact,))
    # Its word alone is no cause, nor is a lock that somebody holds.
    lock = Hit(name="open_transaction", since=at, until=forger.clock)
    given.hits = [lock]
    assert "though nothing was done to it" in only(given, judge.undeserved)[0]
    given.outages = [(at, at + 4)]
    assert "undeserved" not in found(given)


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


def test_daemon_that_was_killed_had_not_ended_before():
    daemon = DaemonStory(pid=HERE, killed=50.0, status=-9)
    assert found(evidence(whole(), daemons=[daemon])) == {}
    daemon = replace(daemon, status=1)
    [told] = only(evidence(whole(), daemons=[daemon]), health.weak_daemons)
    assert "had ended with status 1 when it was to be killed" in told


def test_daemon_that_had_only_just_been_started_may_end_by_the_signal():
    given = evidence(whole())
    given.daemons[0] = replace(given.daemons[0], facts=(), status=-15)
    assert found(given) == {}


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


# An end behind a lock while its daemon leaves (G10)


def left_undelivered(*facts, until):
    """One whose daemon left while somebody had it locked, until then."""
    forger = Forger().begin().lose(hit=False)
    lock = Hit(name="open_transaction", instance=forger.uuid, since=80.0, until=until)
    told = [{"fact": name, "time": 1.0} for name in ("daemon_started", *facts)]
    leaving = DaemonStory(pid=HERE, asked_to_leave=89.0, left=91.0, status=1, facts=tuple(told))
    return evidence(forger, hits=[lock], daemons=[leaving])


def test_an_end_that_was_locked_until_its_daemon_gave_up():
    left = found(left_undelivered("undelivered", until=92.0))
    assert not {"undeserved", "weak_daemons"} & left.keys()


@pytest.mark.parametrize(("facts", "until"), [(["undelivered"], 88.0), ([], 92.0)])
def test_an_end_that_was_free_or_not_told_of(facts, until):
    left = found(left_undelivered(*facts, until=until))
    assert {"undeserved", "weak_daemons"} <= left.keys()

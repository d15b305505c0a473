"""The judge finds what is broken about cancels."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from atp.rows.log import Kind
from atp.states import Event, Reason
from atp.store.values import CANCEL

from . import judge
from .evidence import Entry
from .forged import HERE, THERE, Forger, evidence, found, only
from .member import Hit
from .operators import WHO, Asked


def cancelled(**more):
    """One that was cancelled while it ran."""
    forger = Forger(reason=Reason.CANCELLED, **more).begin()
    ask(forger)
    forger.say("end", outcome="Interrupted")
    forger.move(Event.FAIL, message=f"cancelled by {WHO}")
    return forger


def ask(forger):
    facts = {"event": "", "kind": Kind.ASK, "detail": CANCEL, "attempt": forger.attempt, "who": WHO}
    forger.log.append(Entry(**facts, time=forger._tick()))


def asked(*forgers, is_sure=True):
    return {"cancels": {f.uuid: Asked(at=0.0, is_sure=is_sure) for f in forgers}}


def test_what_is_whole_is_kept():
    waiting = Forger("two", reason=Reason.CANCELLED)
    waiting.move(Event.FAIL, daemon=None, message="cancelled")
    waiting.log[-1] = replace(waiting.log[-1], who=WHO)
    in_time = Forger("three").begin()
    ask(in_time)
    in_time.finish()
    given = (cancelled(), waiting, in_time)
    assert found(evidence(*given, **asked(*given))) == {}
    unknown = Forger("four").begin().finish()
    assert found(evidence(unknown, **asked(unknown, is_sure=False))) == {}


def test_cancelled_and_nobody_asked():
    assert only(evidence(cancelled()), judge.cancelled) == [
        "is CANCELLED, and nobody has asked for it"
    ]


def test_asked_and_not_told():
    forger = Forger().begin().finish()
    [told] = only(evidence(forger, **asked(forger)), judge.cancelled)
    assert "its log does not say so" in told


@pytest.mark.parametrize("is_hit", [True, False])
def test_asked_and_went_on(is_hit):
    forger = Forger().begin()
    ask(forger)
    forger.clock += 20
    at = forger.clock
    if is_hit:
        hit = Hit(name="stop_worker", daemon=HERE, pid=1, since=at - 19, until=at)
        forger.hits.append(hit)
    given = evidence(forger.finish(), **asked(forger))
    if is_hit:
        assert found(given) == {}
    else:
        assert "went on 20" in only(given, judge.cancelled)[0]


@pytest.mark.parametrize("vendor", ["sqlite", "postgresql"])
def test_another_that_is_stopped_keeps_the_file_from_all(vendor, monkeypatch):
    monkeypatch.setattr(judge, "connection", SimpleNamespace(vendor=vendor))
    forger = Forger().begin()
    ask(forger)
    at = forger.clock
    forger.hits.append(Hit(name="stop_dispatcher", daemon=THERE, pid=1, since=at, until=at + 9))
    forger.clock += 7
    given = evidence(forger.finish(), **asked(forger))
    assert bool(found(given)) == (vendor == "postgresql")


def test_asked_twice():
    forger = Forger().begin()
    ask(forger)
    ask(forger)
    forger.finish()
    assert only(evidence(forger, **asked(forger)), judge.cancelled) == ["was cancelled 2 times"]


@pytest.mark.parametrize("event", [Event.RELEASE, Event.RETRY])
def test_run_again_all_the_same(event):
    forger = Forger(retries=int(event == Event.RETRY), max_retries=1).begin()
    ask(forger)
    forger.say("end", outcome="Interrupted")
    forger.move(event)
    forger.begin().finish()
    assert only(evidence(forger, **asked(forger)), judge.cancelled) == [
        "was claimed after it had been cancelled"
    ]


def test_it_went_on():
    forger = cancelled()
    forger.clock += 1
    forger.say("tick")
    [told] = only(evidence(forger, **asked(forger)), judge.cancelled)
    assert "went on" in told

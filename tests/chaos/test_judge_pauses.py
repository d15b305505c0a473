"""The judge of pauses, held against evidence made by hand."""

from atp.states import Event

from .forged import Forger, evidence, found, only
from .judge import at_work_on_hold


def on_hold(type="chaos.sleep"):
    """One that begins, and is on hold for two seconds; nothing else yet."""
    forger = Forger(type=type).begin()
    forger.move(Event.PAUSE)
    forger.clock += 1
    return forger


def go_on(forger):
    forger.clock += 1
    forger.move(Event.RESUME)
    forger.say("tick")
    return forger.finish()


def test_who_does_nothing_on_hold_is_not_told():
    assert found(evidence(go_on(on_hold()))) == {}


def test_at_work_on_hold():
    forger = on_hold()
    forger.say("tick")
    [words] = only(evidence(go_on(forger)), at_work_on_hold)
    assert words == "attempt 1 was at work on hold"


def test_a_child_is_stopped_only_where_the_type_is_stoppable():
    forgers = {}
    for type in ("chaos.family", "chaos.still"):
        forgers[type] = on_hold(type)
        forgers[type].say("child")
        go_on(forgers[type])
    assert found(evidence(forgers["chaos.family"])) == {}
    assert only(evidence(forgers["chaos.still"]), at_work_on_hold)


def test_who_is_lost_on_hold_may_have_gone_on():
    forger = on_hold()
    forger.say("tick")
    forger.clock += 1
    forger.lose().begin(pid=2).finish(pid=2)
    assert found(evidence(forger)) == {}

"""The judge of pauses, held against evidence made by hand."""

import pytest

from atp.states import Event

from .forged import HERE, Forger, evidence, found, only
from .judge import at_work_while_paused
from .member import Hit


def paused(type="chaos.sleep"):
    """One that begins, and is paused for two seconds; nothing else yet."""
    forger = Forger(type=type).begin()
    forger.move(Event.PAUSE)
    forger.clock += 1
    return forger


def go_on(forger):
    forger.clock += 1
    forger.move(Event.RESUME)
    forger.say("tick")
    return forger.finish()


def test_who_does_nothing_while_paused_is_not_told():
    assert found(evidence(go_on(paused()))) == {}


def test_at_work_while_paused():
    forger = paused()
    forger.say("tick")
    [words] = only(evidence(go_on(forger)), at_work_while_paused)
    assert words == "attempt 1 was at work while paused"


def test_a_child_is_stopped_only_where_the_type_is_stoppable():
    forgers = {}
    for type in ("chaos.family", "chaos.still"):
        forgers[type] = paused(type)
        forgers[type].say("child")
        go_on(forgers[type])
    assert found(evidence(forgers["chaos.family"])) == {}
    assert only(evidence(forgers["chaos.still"]), at_work_while_paused)


def test_who_is_lost_while_paused_may_have_gone_on():
    forger = paused()
    forger.say("tick")
    forger.clock += 1
    forger.lose().begin(pid=2).finish(pid=2)
    assert found(evidence(forger)) == {}


@pytest.mark.parametrize(("let_go", "is_told"), [(-0.5, False), (0.001, False), (0.5, True)])
def test_who_was_stopped_while_paused_may_go_on_when_let_go(let_go, is_told):
    """Nobody else knows that it is to stay as it is; the time is noted only afterwards."""
    forger = paused("chaos.still")
    forger.say("tick")
    tick = forger.clock
    hit = Hit(name="stop_worker", daemon=HERE, pid=1, since=tick - 0.9, until=tick + let_go)
    given = evidence(go_on(forger), hits=[hit])
    assert bool(found(given)) == is_told

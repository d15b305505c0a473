"""The judge of graphs, held against evidence made by hand: two nodes, one after the other."""

from dataclasses import replace

import pytest

from atp.rows.graph import Condition
from atp.states import Event, Reason, State

from .graph_judge import FoundNode, GraphEvidence, broken_of
from .graph_shapes import Shape
from .record import Line, executions

UP, DOWN = 1, 2


def node(number, **facts):
    shape = Shape(number, "returns", (), runs_anyhow=False)
    own = {"uuid": f"uuid-{number}", "graph": "graph", "shape": shape, "attempt": 1}
    return FoundNode(**own | {"state": State.FINISHED, "reason": "", "value": number} | facts)


def line(number, event, time, **more):
    facts = {"instance": f"uuid-{number}", "attempt": 1, "pid": 1, "place": 0}
    return Line(event=event, time=time, **facts, **more)


def evidence(*, on=Condition.FINISHED, started=12.0, returned=11.0, claimed=12.0, **downs):
    lines = [
        line(UP, "start", 10.0),
        line(UP, "end", returned, outcome="returned"),
        line(DOWN, "start", started),
        line(DOWN, "end", started + 1, outcome="returned"),
    ]
    log = {
        UP: [(10.0, Event.CLAIM, State.SCHEDULED), (11.0, Event.FINISH, State.FINISHED)],
        DOWN: [(claimed, Event.CLAIM, State.SCHEDULED), (13.0, Event.FINISH, State.FINISHED)],
    }
    nodes = {UP: node(UP), DOWN: node(DOWN, **downs)}
    return GraphEvidence(nodes, [(UP, DOWN, on)], log, executions(lines))


def failed(given, key, reason, at):
    """Let a node have FAILED."""
    given.nodes[key] = replace(given.nodes[key], state=State.FAILED, reason=reason, value=None)
    given.log[key][-1] = (at, Event.FAIL, State.FAILED)
    return given


def words(given):
    return [each.partition(") ")[2] for each in broken_of(given)]


@pytest.mark.parametrize("on", Condition)
def test_one_after_the_other(on):
    value = 2 if on == Condition.FINISHED else 1
    assert words(evidence(on=on, value=value)) == []


def test_before_the_other_has_returned():
    assert words(evidence(started=10.9)) == ["started before node-1 had returned"]


def test_after_one_that_failed():
    given = failed(evidence(value=1), UP, Reason.CANCELLED, 11.0)
    assert words(given) == ["started before node-1 had returned"]


def test_before_the_other_has_ended():
    given = evidence(on=Condition.ENDED, claimed=10.5, value=1)
    assert words(given) == ["was claimed before node-1 had ended"]


def test_stuck():
    given = evidence(state=State.ACCEPTED)
    assert words(given) == ["is ACCEPTED at the end"]


def test_a_result_that_was_lost():
    assert words(evidence(value=1)) == ["has the result 1, not 2"]


@pytest.mark.parametrize(("at", "is_right"), [(11.0, True), (20.0, False)])
def test_failed_as_upstream(at, is_right):
    given = failed(evidence(), UP, Reason.CANCELLED, at)
    given = failed(given, DOWN, Reason.UPSTREAM, 13.0)
    given.executions.pop("uuid-2")
    assert bool(words(given)) != is_right


def test_failed_by_itself_and_was_not_to():
    given = failed(evidence(), DOWN, Reason.FATAL, 13.0)
    assert words(given) == ["is FATAL, and its handler never is"]

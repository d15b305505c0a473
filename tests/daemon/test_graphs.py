"""Graphs that are run by real daemons (G17)."""

import os
import signal

import pytest

from atp import Graph, queue, result
from atp.models import Failing, Task
from atp.models import Graph as GraphRow
from atp.states import Reason, State
from tests.app.tasks_graphs import fetch, merge, noop, report, shade
from tests.helpers import DEADLINE, wait_for

from .harness import Lines

pytestmark = pytest.mark.django_db(transaction=True)


def terrain(**more):
    with Graph("mosaic") as g:
        scene = g.add(fetch, url="s", **more)
        tiles = g.map(shade, [{"path": result(scene)["tiles"][n]} for n in range(3)], after=scene)
        merged = g.add(merge, result(tiles), after=tiles)
        g.add(report, of="merge", after=merged, on_failure="run")
    return g


def outcome(g, name):
    return queue.response(g.instance(name)).value


def test_results_go_from_node_to_node(atpd):
    """G17: fan-out over a result, fan-in of its parts, in order."""
    atpd(processes=2)
    g = terrain().wait(DEADLINE)
    shaded = [f"shaded s/{n} by 1" for n in range(3)]
    assert outcome(g, "merge") == shaded
    assert outcome(g, "report") == ["FINISHED", "", shaded]
    wait_for(lambda: GraphRow.objects.get().ended)


def test_after_a_failure_the_others_fail_and_the_report_runs(atpd):
    atpd(processes=2)
    g = terrain(broken=True).wait(DEADLINE)
    assert g.instance("fetch").reason == Reason.FATAL
    for name in ("shade-1", "shade-2", "shade-3", "merge"):
        assert g.instance(name).reason == Reason.UPSTREAM
    state, reason, words = outcome(g, "report")
    assert (state, reason) == ("FAILED", "UPSTREAM")
    assert "no result of 'merge'" in words


def test_a_key_that_is_not_there_is_fatal_and_named(atpd):
    with Graph() as g:
        scene = g.add(fetch, url="s")
        g.add(shade, path=result(scene)["tiles"][7], after=scene)
    atpd(processes=1)
    g.wait(DEADLINE)
    instance = g.instance("shade")
    assert (instance.state, instance.reason) == (State.FAILED, Reason.FATAL)
    assert "'fetch' has nothing at ['tiles'][7]" in instance.log.last().message


def test_a_wide_graph_fails_in_portions(atpd):
    """G17: more dependants than one transaction fails."""
    with Graph() as g:
        scene = g.add(fetch, url="s", broken=True)
        tiles = g.map(noop, [{} for _ in range(1200)], after=scene)
        g.add(merge, after=tiles)
    atpd(processes=1)
    g.wait(DEADLINE)
    assert not Task.objects.exists()
    wait_for(lambda: not Failing.objects.exists())


def test_a_killed_worker_costs_no_fan_in(atpd, tmp_path):
    """G17: 60 nodes over four layers, with workers that are killed in the middle of it."""
    path = tmp_path / "ran"
    with Graph() as g:
        before = ()
        for _ in range(4):
            rows = [{"path": str(path), "number": n} for n in range(15)]
            before = g.map(noop, rows, after=before)
    daemon = atpd(processes=2)
    lines = Lines(path)
    for reached in (5, 20, 40):
        wait_for(lambda reached=reached: len(lines.all()) >= reached)
        for pid in daemon.workers()[:1]:
            os.kill(pid, signal.SIGKILL)
    g.wait(DEADLINE)
    assert {g.instance(f"noop-{n}").state for n in (1, 30, 60)} == {State.FINISHED}

"""Graphs that fail are undone by real daemons, each node once, in reverse order (G2, G17)."""

import os
import re
import signal

import pytest

from atp import Graph, result
from atp.models import Graph as GraphRow
from atp.models import Node
from atp.reports import graphs as reports
from atp.states import State
from tests.app import tasks_saga
from tests.app.tasks_saga import diary, do, undo, undo_badly
from tests.environment import ROOT
from tests.helpers import DEADLINE, wait_for

from .harness import Lines

pytestmark = pytest.mark.django_db(transaction=True)

# Three layers of so many nodes, and one at the end that fails.
WIDE = 4


def saga(path, *, bad=()):
    """Layers in which each comes after all of the one before; ``bad`` cannot be undone."""
    with Graph("saga") as g:
        before = ()
        for layer in range(3):
            nodes = []
            for number in range(WIDE):
                name = f"{layer}-{number}"
                by = undo_badly if name in bad else undo
                inputs = {"path": str(path), "name": name}
                node = g.add(do, inputs=inputs, name=name, after=before, undo=by)
                nodes.append(node)
            before = nodes
        last = {"path": str(path), "name": "last", "broken": True}
        g.add(do, inputs=last, name="last", after=before, undo=undo)
    return g


def undone(path):
    """Return the names of what was undone, in the order of the ends."""
    return [line["undid"] for line in Lines(path).all() if "undid" in line]


def check(path):
    """All were undone, each layer before the one that it came after."""
    first = list(dict.fromkeys(undone(path)))
    assert sorted(first) == [f"{layer}-{n}" for layer in range(3) for n in range(WIDE)]
    assert [name[0] for name in first] == sorted((name[0] for name in first), reverse=True)
    assert Node.objects.filter(undoes__isnull=False).count() == 3 * WIDE


def state(g):
    row = GraphRow.objects.get(pk=g.row.pk)
    return reports.state(row, reports.counts_of(row))


def test_it_is_undone_in_reverse_order(atpd, tmp_path):
    atpd(processes=2)
    path = tmp_path / "record"
    g = saga(path).wait(DEADLINE)
    check(path)
    # None of them was killed: each ran once.
    assert len(undone(path)) == 3 * WIDE
    assert state(g) == "undone"
    wait_for(lambda: GraphRow.objects.get().ended)


def test_workers_that_are_killed_undo_nothing_twice(atpd, tmp_path):
    """G2, G17: each has one Instance, and what was cut off is begun again."""
    path = tmp_path / "record"
    daemon = atpd(processes=2)
    g = saga(path)
    lines = Lines(path)
    for reached in (1, 5):
        wait_for(
            lambda reached=reached: sum("begun" in line for line in lines.all()) >= reached,
            timeout=120,
        )
        for pid in daemon.workers():
            os.kill(pid, signal.SIGKILL)
    g.wait(DEADLINE)
    check(path)
    assert state(g) == "undone"


def test_a_daemon_that_is_killed_is_no_reason_to_undo_twice(atpd, tmp_path):
    """G1, G17: another goes on, whether or not the undo was written."""
    path = tmp_path / "record"
    first = atpd(processes=2)
    g = saga(path)
    lines = Lines(path)
    wait_for(lambda: any(line.get("did") == "last" for line in lines.all()))
    first.destroy()
    atpd(processes=2)
    g.wait(DEADLINE)
    check(path)
    assert state(g) == "undone"


def test_one_that_cannot_be_undone_is_seen_and_stops_no_other(atpd, tmp_path):
    path = tmp_path / "record"
    atpd(processes=2)
    g = saga(path, bad=("1-0",)).wait(DEADLINE)
    check(path)
    assert g.instance("undo-1-0").state == State.FAILED
    assert state(g) == "failed"


def test_what_the_page_tells_is_so(atpd):
    """The example of docs/graphs.md: its handlers, and its graph."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/graphs.md").read_text(), re.DOTALL)
    [handlers] = [block for block in blocks if "trip.unbook" in block]
    [graph] = [block for block in blocks if 'Graph("trip")' in block]
    source = (ROOT / "tests/app/tasks_saga.py").read_text()
    assert handlers.strip() in source
    diary().unlink(missing_ok=True)
    atpd(processes=2)
    names = {**vars(tasks_saga), "Graph": Graph, "result": result}
    exec(graph, names)
    names["g"].wait(DEADLINE)
    back = [line["given_back"] for line in Lines(diary()).all() if "given_back" in line]
    assert sorted(back) == ["car-17", "flight-17", "hotel-17"]
    assert back[-1] == "flight-17"

"""Graphs that are run by real daemons, grow while they run, and are undone (G2, G17)."""

import os
import re
import signal

import pytest
from django.db import transaction

from atp import Graph, messages, result
from atp.graphs import reports
from atp.models import Graph as GraphRow
from atp.models import Node, Task
from atp.states import Reason, State
from tests.app import tasks_graphs as types
from tests.app import tasks_saga
from tests.app.tasks_saga import diary, do, undo
from tests.environment import ROOT
from tests.helpers import DEADLINE, wait_for
from tests.nonsense import tells

from .harness import Lines
from .scenario import on_postgresql

# Handlers that add nodes to their own graph

PARTS = 5


def splitting(adds, **inputs):
    """A graph of one that adds nodes, and one that waits for it."""
    with Graph() as g:
        first = g.add(adds, inputs=inputs, name="split")
        g.add(types.merge, after=first, name="merge")
    return g


def ran(path):
    return sorted(line["number"] for line in Lines(path).all() if "number" in line)


def splits(path):
    """The attempts that have added their first parts."""
    return [line["split"] for line in Lines(path).all() if "split" in line]


def parts():
    return Node.objects.filter(name__startswith="split/")


def last_part():
    return parts().order_by("-instance__finished").first().instance.finished


def terrain(**more):
    with Graph("mosaic") as g:
        scene = g.add(types.fetch, url="s", **more)
        paths = [{"path": result(scene)["tiles"][n]} for n in range(3)]
        tiles = g.map(types.shade, paths, after=scene)
        merged = g.add(types.merge, result(tiles), after=tiles)
        g.add(types.report, of="merge", after=merged, on_failure="run")
    return g


def test_nodes_get_results_and_wait_for_added_nodes(atpd, tmp_path):
    """G7, G17: if need be they are added with the end of the upstream."""
    atpd(processes=2)
    g = terrain().wait(DEADLINE)
    shaded = [f"shaded s/{n} by 1" for n in range(3)]
    assert g.result("report") == ["FINISHED", "", shaded]
    failed = terrain(broken=True).wait(DEADLINE)
    # After a failure the others fail, and the report runs.
    assert failed.instance("fetch").reason == Reason.FATAL
    assert failed.result("report")[:2] == ["FAILED", "UPSTREAM"]
    wait_for(lambda: not GraphRow.objects.filter(ended=None).exists())

    path = tmp_path / "ran"
    g = splitting(types.split, path=str(path), parts=PARTS).wait(DEADLINE)
    assert ran(path) == list(range(2 * PARTS))
    assert g.instance("merge").state == State.FINISHED
    assert g.instance("merge").started >= last_part()
    assert set(parts().values_list("name", flat=True)) == {
        f"split/noop-{number}" for number in range(1, 2 * PARTS + 1)
    }
    path = tmp_path / "at once"
    g = splitting(types.split_at_once, path=str(path), parts=PARTS).wait(DEADLINE)
    assert ran(path) == list(range(PARTS))
    assert g.instance("merge").started >= last_part()
    count = parts().count()
    g = splitting(types.split_at_once, path=str(path), parts=PARTS, broken=True).wait(DEADLINE)
    assert g.instance("merge").reason == Reason.UPSTREAM
    # For what else is refused see store/test_graphs_adding.py.
    split = splitting(types.grow_in_transaction).wait(DEADLINE).instance("split")
    told = "context.graph() is inside a transaction"
    assert any(told in message for message in split.log.values_list("message", flat=True))
    assert parts().count() == count


def test_killed_attempt_and_the_next_add_no_node_twice(atpd, tmp_path):
    """G17."""
    path, until = tmp_path / "ran", tmp_path / "until"
    g = splitting(types.split, path=str(path), parts=PARTS, until=str(until))
    daemon = atpd(processes=2)
    wait_for(lambda: splits(path) and len(ran(path)) == PARTS)
    wait_for(lambda: Task.objects.get(instance__node__name="merge").waits == 1)
    for pid in daemon.workers():
        os.kill(pid, signal.SIGKILL)
    # Not of attempt 2 in any case: a claim may be given back before it is started.
    wait_for(lambda: len(splits(path)) > 1, what="a second attempt that adds its first parts")
    until.touch()
    g.wait(DEADLINE)
    assert ran(path) == list(range(2 * PARTS))
    assert parts().count() == 2 * PARTS
    assert g.instance("merge").started >= last_part()


@on_postgresql
def test_adding_nodes_waits_for_a_locked_graph_and_logs_it(atpd, tmp_path):
    """G9."""
    cases = {types.split: [0, 1], types.split_at_once: [0]}
    paths = {adds: tmp_path / adds.identifier for adds in cases}
    made = {adds: splitting(adds, path=str(path), parts=1) for adds, path in paths.items()}
    with transaction.atomic():
        assert len(GraphRow.objects.select_for_update()) == 2
        atpd(processes=2)
        told = messages.addition_waits()
        for g in made.values():
            wait_for(lambda g=g: any(tells(each.message, told) for each in g.instance("split").log))
        assert not parts().exists()
    for adds, added in cases.items():
        made[adds].wait(DEADLINE)
        assert ran(paths[adds]) == added


# Graphs that fail

# Three layers of so many nodes, and one at the end that fails.
WIDE = 4


def saga(path):
    """Layers in which each comes after all of the one before."""
    with Graph("saga") as g:
        before = ()
        for layer in range(3):
            nodes = []
            for number in range(WIDE):
                name = f"{layer}-{number}"
                inputs = {"path": str(path), "name": name}
                nodes.append(g.add(do, inputs=inputs, name=name, after=before, undo=undo))
            before = nodes
        last = {"path": str(path), "name": "last", "broken": True}
        g.add(do, inputs=last, name="last", after=before, undo=undo)
    return g


@pytest.mark.slow
def test_failed_graph_is_undone_in_reverse_order_despite_kills(atpd, tmp_path):
    """G1, G2, G17."""
    path = tmp_path / "record"
    first = atpd(processes=2)
    g = saga(path)
    lines = Lines(path)

    def have_begun(count):
        return lambda: sum("begun" in line for line in lines.all()) >= count

    wait_for(have_begun(1))
    for pid in first.workers():
        os.kill(pid, signal.SIGKILL)
    wait_for(have_begun(5))
    first.destroy()
    atpd(processes=2)
    g.wait(DEADLINE)
    # All were undone, each layer before the one that it came after.
    undone = list(dict.fromkeys(line["undid"] for line in lines.all() if "undid" in line))
    assert sorted(undone) == [f"{layer}-{n}" for layer in range(3) for n in range(WIDE)]
    assert [name[0] for name in undone] == sorted((name[0] for name in undone), reverse=True)
    assert Node.objects.filter(undoes__isnull=False).count() == 3 * WIDE
    row = GraphRow.objects.get(pk=g.row.pk)
    assert reports.state(row, reports.counts_of(row)) == "undone"
    wait_for(lambda: GraphRow.objects.get().ended)


def test_example_of_the_docs_is_undone(atp):
    """Handlers and graph of docs/graphs.md."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/graphs.md").read_text(), re.DOTALL)
    [handlers] = [block for block in blocks if "trip.unbook" in block]
    [graph] = [block for block in blocks if 'Graph("trip")' in block]
    source = (ROOT / "tests/app/tasks_saga.py").read_text()
    assert handlers.strip() in source
    diary().unlink(missing_ok=True)
    names = {**vars(tasks_saga), "Graph": Graph, "result": result}
    exec(graph, names)
    atp.drain(raises=False)
    back = [line["given_back"] for line in Lines(diary()).all() if "given_back" in line]
    assert sorted(back) == ["car-17", "flight-17", "hotel-17"]
    assert back[-1] == "flight-17"

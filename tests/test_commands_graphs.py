"""``manage.py atp graphs`` and ``graph`` (docs/shell.md)."""

import re
from collections import Counter

import pytest
from django.core.management.base import CommandError

from atp import queue
from atp.graphs import reports
from atp.models import Instance
from atp.shell.base import actor
from atp.states import Reason

from .app.tasks import echo
from .populated import ESCAPE, GRAPH, MARKUP, populate, submitted
from .test_commands_atp import document, run


@pytest.fixture
def graph(world):
    return populate(world).graph()


def test_graphs_are_listed_and_selected(graph):
    submitted("other", {"only": echo})
    other, first = run("graphs").splitlines()[1:]
    assert other.split()[1:4] == ["other", "waiting", "1"]
    assert f"{GRAPH}  running      6  2 finished, 1 failed, 1 running, 2 accepted" in first
    assert len(document("graphs", "--limit", "1")["graphs"]) == 1
    assert len(document("graphs", "--live")["graphs"]) == 2
    [found] = document("graphs", "--name", GRAPH)["graphs"]
    assert found["uuid"] == str(graph.uuid)
    assert run("graphs", "--name", "none").strip() == "There are no such graphs."


def test_a_graph_is_a_list_or_a_flowchart(graph):
    lines = run("graph", "show", str(graph.uuid)).splitlines()
    assert f"name     {GRAPH}" in lines
    [start] = [number for number, line in enumerate(lines) if line.startswith("node ")]
    assert [re.sub(r"  +(?=\S)", "  ", line.lstrip()) for line in lines[start + 1 :]] == [
        "fetch  tests.echo  finished",
        "part-0  tests.echo  finished  after fetch",
        "part-1  tests.echo  failed (error)  after fetch",
        "part-2  tests.echo  running  after fetch",
        "merge  tests.echo  accepted, waits for 1  after part-0 and 2 others",
        f"{MARKUP}  tests.echo  accepted, waits for 1  after merge",
    ]
    depths = [len(line) - len(line.lstrip()) for line in lines[start + 1 :]]
    assert depths == [0, 2, 2, 2, 4, 6]
    assert run("graph", "show", str(graph.uuid), "--mermaid").startswith("flowchart LR\n")
    with pytest.raises(CommandError, match="without --json"):
        run("graph", "show", str(graph.uuid), "--mermaid", "--json")
    merge = Instance.objects.get(node__graph=graph, node__name="merge")
    shown = run("show", str(merge.uuid))
    assert "waits for    It waits for part-2." in shown
    assert "9999" not in shown


def test_a_graph_by_the_beginning_of_its_uuid(graph):
    assert run("graph", "show", str(graph.uuid)[:23]) == run("graph", "show", str(graph.uuid))
    uuids = [str(submitted("other", {"only": echo}).uuid) for _ in range(3)]
    # The first eight digits change each minute: at least two of three have the same ones.
    [(common, _)] = Counter(uuid[:8] for uuid in uuids).most_common(1)
    for given, told in ((common, "[Mm]ore than one"), ("00000000", "There is no graph")):
        with pytest.raises(CommandError, match=told):
            run("graph", "show", given)


def test_a_graph_is_redriven_and_cancelled(graph):
    """G6: each node is logged with who did it."""
    assert run("graph", "redrive", str(graph.uuid)) == "Nodes back in the queue: 1.\n"
    with pytest.raises(CommandError, match="no node of it is FAILED"):
        run("graph", "redrive", str(graph.uuid))
    told = document("graph", "cancel", str(graph.uuid)[:23])
    assert told == {"outcome": "Nodes cancelled: 4. A daemon ends the nodes that it holds."}
    nodes = Instance.objects.filter(node__graph=graph)
    assert nodes.filter(reason=Reason.CANCELLED).count() == 3
    assert {nodes.get(node__name=n).log.last().who for n in ("part-1", "part-2")} == {actor()}


def test_what_is_too_large_is_counted(graph, monkeypatch):
    monkeypatch.setattr(reports, "MOST_NODES", 5)
    shown = run("graph", "show", str(graph.uuid))
    assert "is not drawn" in shown
    assert "2 finished" in shown
    with pytest.raises(CommandError, match="is not drawn"):
        run("graph", "show", str(graph.uuid), "--mermaid")


def test_names_cannot_move_the_cursor(world):
    """G14."""
    queue.register_all()
    row = submitted(f"a{ESCAPE}", {f"b{ESCAPE}": echo})
    assert "\x1b" not in run("graph", "show", str(row.uuid)) + run("graphs")

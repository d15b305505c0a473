"""Graphs over HTTP (docs/graphs.md)."""

import pytest

from atp.models import Graph, Instance, LogRecord
from atp.reports import graphs as reports

from ..app.tasks import echo
from ..populated import GRAPH, MARKUP, submitted
from .client import Api, problem

UUID = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def graph(full):
    return full.graph()


def test_a_graph(graph, api):
    found = api.get(f"graphs/{graph.uuid}").json()
    assert (found["name"], found["state"], found["nodes"]) == (GRAPH, "running", 6)
    assert found["counts"] == {
        "accepted": 2,
        "scheduled": 0,
        "running": 1,
        "paused": 0,
        "finished": 2,
        "failed": 1,
    }
    assert found["created_by"] == MARKUP
    assert api.get(found["url"]).json() == found


def test_the_list_is_newest_first(graph, api, django_assert_max_num_queries):
    for number in range(10):
        submitted(f"graph-{number}", {"only": echo})
    with django_assert_max_num_queries(10):
        found = api.get("graphs").json()["results"]
    assert [each["name"] for each in found] == [f"graph-{n}" for n in range(9, -1, -1)] + [GRAPH]
    assert [each["nodes"] for each in found] == [1] * 10 + [6]


def test_the_list_has_pages(graph, api):
    submitted("other", {"only": echo})
    first = api.get("graphs?limit=1").json()
    second = api.get(first["next"]).json()
    assert [each["name"] for each in first["results"] + second["results"]] == ["other", GRAPH]
    assert second["next"] is None


@pytest.mark.parametrize(
    ("query", "count"),
    [("ended=false", 2), ("ended=true", 0), (f"name={GRAPH}", 1), ("name=none", 0)],
)
def test_the_list_is_filtered(graph, api, query, count):
    submitted("other", {"only": echo})
    assert len(api.get(f"graphs?{query}").json()["results"]) == count


@pytest.mark.parametrize("query", ["end=true", "ended=maybe", "limit=0", "name="])
def test_a_filter_that_is_not_possible(graph, api, query):
    assert api.get(f"graphs?{query}").status_code == 400


def test_nodes(graph, api, django_assert_max_num_queries):
    with django_assert_max_num_queries(9):
        found = api.get(f"graphs/{graph.uuid}/nodes").json()["results"]
    assert {node["name"]: (node["state"], node["waits"]) for node in found} == {
        "fetch": ("FINISHED", 0),
        "part-0": ("FINISHED", 0),
        "part-1": ("FAILED", 0),
        "part-2": ("RUNNING", 0),
        "merge": ("ACCEPTED", 1),
        MARKUP: ("ACCEPTED", 1),
    }
    [failed] = [node for node in found if node["reason"]]
    instance = api.get(f"instances/{failed['instance']}").json()
    assert (instance["reason"], instance["graph"]) == ("ERROR", str(graph.uuid))


@pytest.mark.parametrize(
    ("query", "count"),
    [("state=ACCEPTED", 2), ("type=tests.add", 0), ("name=part-", 3), ("name=PART-", 0)],
)
def test_nodes_are_filtered(graph, api, query, count):
    assert len(api.get(f"graphs/{graph.uuid}/nodes?{query}").json()["results"]) == count


def test_nodes_have_pages(graph, api):
    seen, url = [], f"graphs/{graph.uuid}/nodes?limit=4"
    while url:
        found = api.get(url).json()
        seen += found["results"]
        url = found["next"]
    assert seen == api.get(f"graphs/{graph.uuid}/nodes").json()["results"]


def test_actions_are_those_that_make_a_difference(graph, api):
    found = api.get(f"graphs/{graph.uuid}").json()
    assert found["actions"] == ["cancel", "redrive"]
    assert api.post(f"graphs/{graph.uuid}/redrive").json()["actions"] == ["cancel"]
    [listed] = api.get("graphs").json()["results"]
    assert "actions" not in listed


def test_a_graph_is_cancelled(graph, api):
    """G6: each node is logged with who did it."""
    found = api.post(f"graphs/{graph.uuid}/cancel").json()
    assert (found["request"], found["actions"]) == ("cancel", ["redrive"])
    assert (found["counts"]["failed"], found["counts"]["running"]) == (3, 1)
    log = LogRecord.objects.filter(instance__node__graph=graph, who="user operator via API")
    assert set(log.values_list("instance__node__name", flat=True)) == {"part-2", "merge", MARKUP}
    again = api.post(f"graphs/{graph.uuid}/cancel")
    assert (again.status_code, problem(again)) == (409, "illegal-transition")


def test_nothing_of_a_graph_is_failed(full, api):
    row = submitted("one", {"only": echo})
    answer = api.post(f"graphs/{row.uuid}/redrive")
    assert (answer.status_code, problem(answer)) == (409, "illegal-transition")
    assert "none of it is FAILED" in answer.json()["detail"]


@pytest.mark.parametrize("uuid", [UUID, "nonsense"])
@pytest.mark.parametrize("verb", ["cancel", "redrive"])
def test_a_verb_of_no_graph(full, api, uuid, verb):
    answer = api.post(f"graphs/{uuid}/{verb}")
    assert (answer.status_code, problem(answer)) == (404, "unknown-graph")


def test_the_text_for_mermaid(graph, api):
    answer = api.get(f"graphs/{graph.uuid}/graph.mmd")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.body.startswith(b"flowchart LR\n")


def test_what_is_too_large_is_not_drawn(graph, api, monkeypatch):
    monkeypatch.setattr(reports, "MOST_NODES", 5)
    answer = api.get(f"graphs/{graph.uuid}/graph.mmd")
    assert (answer.status_code, problem(answer)) == (404, "not-found")


@pytest.mark.parametrize("uuid", [UUID, "nonsense", UUID.replace("-", "")])
@pytest.mark.parametrize("below", ["", "/nodes", "/graph.mmd"])
def test_there_is_no_such_graph(full, api, uuid, below):
    answer = api.get(f"graphs/{uuid}{below}")
    assert (answer.status_code, problem(answer)) == (404, "unknown-graph")


def test_a_node_says_what_it_waits_for(graph, api, user_with):
    merge = Instance.objects.get(node__graph=graph, node__name="merge")
    found = api.get(f"instances/{merge.uuid}").json()
    assert found["waits_for"] == ["It waits for part-2."]
    assert (found["due_at"], found["graph"]) == (None, str(graph.uuid))
    own = Api(user_with("view_instance", name="visitor"))
    assert "graph" not in own.get(f"instances/{merge.uuid}").json()


def test_a_task_that_is_blocked_has_no_due_time(graph, api):
    merge = Instance.objects.get(node__graph=graph, node__name="merge")
    due = {task["instance"]: task["due_at"] for task in api.get("tasks").json()["results"]}
    assert due[str(merge.uuid)] is None


def test_a_graph_without_nodes(full, api):
    row = Graph.objects.create(created=full.world.store.now())
    found = api.get(f"graphs/{row.uuid}").json()
    assert (found["state"], found["nodes"]) == ("finished", 0)

"""Graphs over HTTP (docs/graphs.md)."""

import pytest

from atp.graphs import reports
from atp.models import Instance

from ..app.tasks import echo
from ..populated import GRAPH, MARKUP, submitted
from .client import Api, refusal


@pytest.fixture
def graph(full):
    return full.graph()


def test_graph_document_and_node_list_show_states_and_counts(
    graph, api, django_assert_max_num_queries
):
    found = api.get(f"graphs/{graph.uuid}").json()
    assert (found["name"], found["state"], found["nodes"]) == (GRAPH, "running", 6)
    counts = {"accepted": 2, "running": 1, "finished": 2, "failed": 1}
    assert found["counts"] == {"scheduled": 0, "paused": 0, **counts}
    assert (found["created_by"], found["actions"]) == (MARKUP, ["cancel", "redrive"])
    assert api.get(found["url"]).json() == found
    with django_assert_max_num_queries(9):
        nodes = api.get(f"graphs/{graph.uuid}/nodes").json()["results"]
    assert {node["name"]: (node["state"], node["waits"]) for node in nodes} == {
        "fetch": ("FINISHED", 0),
        "part-0": ("FINISHED", 0),
        "part-1": ("FAILED", 0),
        "part-2": ("RUNNING", 0),
        "merge": ("ACCEPTED", 1),
        MARKUP: ("ACCEPTED", 1),
    }
    [failed] = [node for node in nodes if node["reason"]]
    instance = api.get(f"instances/{failed['instance']}").json()
    assert (instance["reason"], instance["graph"]) == ("ERROR", str(graph.uuid))
    for query, count in (("state=ACCEPTED", 2), ("type=tests.add", 0), ("name=PART-", 0)):
        found = api.get(f"graphs/{graph.uuid}/nodes?{query}").json()["results"]
        assert len(found) == count, query


def test_graph_list_is_newest_first_and_can_be_filtered(graph, api, django_assert_max_num_queries):
    for number in range(10):
        submitted(f"graph-{number}", {"only": echo})
    with django_assert_max_num_queries(10):
        found = api.get("graphs").json()["results"]
    assert [each["name"] for each in found] == [f"graph-{n}" for n in range(9, -1, -1)] + [GRAPH]
    assert [each["nodes"] for each in found] == [1] * 10 + [6]
    assert "actions" not in found[0]
    for query, count in (("ended=false", 11), ("ended=true", 0), (f"name={GRAPH}", 1)):
        assert len(api.get(f"graphs?{query}").json()["results"]) == count, query


def test_mermaid_text_is_served_unless_the_graph_is_too_large(graph, api, monkeypatch):
    assert api.get(f"graphs/{graph.uuid}/graph.mmd").body.startswith(b"flowchart LR\n")
    monkeypatch.setattr(reports, "MOST_NODES", 5)
    assert refusal(api.get(f"graphs/{graph.uuid}/graph.mmd")) == (404, "not-found")


def test_an_instance_in_a_graph_names_the_node_that_it_waits_for(graph, api, user_with):
    """Such an Instance has no due time."""
    merge = Instance.objects.get(node__graph=graph, node__name="merge")
    found = api.get(f"instances/{merge.uuid}").json()
    assert found["waits_for"] == ["It waits for part-2."]
    assert (found["due_at"], found["graph"]) == (None, str(graph.uuid))
    own = Api(user_with("view_instance", name="visitor"))
    assert "graph" not in own.get(f"instances/{merge.uuid}").json()
    due = {task["instance"]: task["due_at"] for task in api.get("tasks").json()["results"]}
    assert due[str(merge.uuid)] is None

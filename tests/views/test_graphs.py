"""The pages of graphs (docs/graphs.md)."""

import re
from xml.etree import ElementTree

import pytest

from atp import queue
from atp.graphs import reports
from atp.models import Graph as Row
from atp.models import Instance, LogRecord, Task
from atp.states import Event, Reason

from ..app.tasks import echo
from ..populated import GRAPH, MARKUP, submitted
from .pages import check_page

LIST = "/atp/graphs/"
ESCAPED = "&lt;script&gt;"


@pytest.fixture
def graph(full):
    """A running graph, made by ``Populated.graph()``."""
    return full.graph()


def page(row, below=""):
    return f"{LIST}{row.uuid}/{below}"


def svg(shown):
    """Return the picture on a page as parsed XML."""
    [found] = re.findall(r"<svg width.*?</svg>", shown, re.S)
    return ElementTree.fromstring(found)


def boxes(shown):
    """Return the text, the link and the CSS classes of each box in the picture."""
    found = {}
    for parent in svg(shown).iter():
        for box in parent.findall("g"):
            name, told = (each.text for each in box.findall("text"))
            found[name] = (told, parent.get("href"), box.get("class"))
    return found


def fan(count):
    """Submit a graph of one node, then ``count`` parallel nodes, then one node."""
    parts = [f"part-{number}" for number in range(count)]
    edges = [("fetch", part) for part in parts] + [(part, "merge") for part in parts]
    return submitted("fan", dict.fromkeys(("fetch", *parts, "merge"), echo), edges)


@pytest.mark.slow
def test_the_list_counts_nodes_by_state(graph, operator, django_assert_max_num_queries):
    """The number of queries does not grow with the list."""
    state = '<span class="condition running">running</span>'
    with django_assert_max_num_queries(9):
        # Who has made it is escaped.
        parts = f'href="{page(graph)}"', state, ESCAPED
        shown = check_page(operator.get(LIST), *parts, lacks=[MARKUP])
    for state, count in (("FINISHED", 2), ("FAILED", 1), ("RUNNING", 1), ("ACCEPTED", 2)):
        assert re.search(rf">{state}</span>\s*{count}</span>", shown), state
    for _ in range(20):
        fan(3)
    for query, count in (("", 21), ("?ended=false", 21), ("?ended=true", 0), (f"?name={GRAPH}", 1)):
        with django_assert_max_num_queries(9):
            shown = check_page(operator.get(LIST + query))
        assert shown.count('data-label="Graph"') == count


def test_the_list_stops_counting_nodes_of_large_graphs(graph, operator, monkeypatch):
    monkeypatch.setattr(reports, "MOST_COUNTED", 10)
    large = fan(9)
    check_page(operator.get(LIST), "10+</td>")
    counted = reports.counts_of_graphs([graph, large])
    assert (counted[graph.pk].is_more, counted[large.pk].is_more) == (False, True)
    assert reports.state(large, counted[large.pk]) == "running"
    # Nor is all that is in a list.
    monkeypatch.undo()
    monkeypatch.setattr(reports, "MOST_IN_ALL", 8)
    counted = reports.counts_of_graphs([graph, large])
    assert [counts.is_more for counts in counted.values()] == [False, True]


def test_a_graph_is_drawn_with_its_text_escaped(graph, operator):
    """The picture complies with the Content-Security-Policy (G14)."""
    answer = operator.get(page(graph))
    assert "style-src 'self'" in answer.headers["Content-Security-Policy"]
    shown = check_page(answer, lacks=[MARKUP])
    assert not re.search(r"<svg.*?(?: style=|<style|<script| on\w+=).*?</svg>", shown, re.S)
    drawn = boxes(shown)
    assert {name: told for name, (told, _, _) in drawn.items()} == {
        "fetch": "finished",
        "part-0": "finished",
        "part-1": "failed (error)",
        "part-2": "running",
        "merge": "accepted, waits for 1",
        "<script>al…</script>": "accepted, waits for 1",
    }
    assert drawn["merge"][2].split() == ["box", "accepted", "blocked"]
    merge = Instance.objects.get(node__graph=graph, node__name="merge")
    assert drawn["merge"][1] == f"/atp/instances/{merge.uuid}/"
    classes = [path.get("class") for path in svg(shown).iter("path") if path.get("class")]
    assert len(classes) == 7
    assert sum("always" in each for each in classes) == 3
    assert svg(shown).find("title").text == GRAPH
    assert svg(shown).find("desc").text.startswith("6 nodes in 4 layers: 2 finished, 1 failed")
    # A table names what each node waits for.
    rows = re.findall(r"<tr>\s*(<td.*?)</tr>", shown, re.S)
    told = [re.sub(r"<[^>]+>|\s+", " ", row).split() for row in rows]
    states = ("FAILED", "RUNNING", "ACCEPTED", "ACCEPTED", "FINISHED", "FINISHED")
    assert tuple(row[0] for row in told) == states
    assert " ".join(told[2]).endswith("It waits for part-2.")
    assert " ".join(told[3]).endswith("It waits for merge.")


def test_many_similar_nodes_share_a_box_that_links_to_their_list(
    full, operator, django_assert_max_num_queries
):
    row = fan(60)
    with django_assert_max_num_queries(12):
        drawn = boxes(check_page(operator.get(page(row))))
    nodes = page(row, "nodes/")
    assert drawn["tests.echo × 60"][:2] == ("60 accepted", f"{nodes}?type=tests.echo")
    assert len(drawn) == 3
    first = operator.get(nodes)
    second = operator.get(f"{nodes}?page={first.context['page'].next}")
    assert [nodes_in(answer) for answer in (first, second)] == [50, 12]


def nodes_in(answer):
    return check_page(answer).count('data-label="Node"')


def test_a_graph_that_is_too_large_is_not_drawn(graph, operator, monkeypatch):
    monkeypatch.setattr(reports, "MOST_NODES", 5)
    link = f'href="{page(graph, "nodes/")}?type=tests.echo"'
    check_page(operator.get(page(graph)), "too large to be drawn", link, lacks=["<svg width"])
    assert operator.get(page(graph, "graph.mmd")).status_code == 404


def test_a_graph_without_nodes_is_finished(full, operator):
    check_page(operator.get(LIST), "There is no graph.")
    row = Row.objects.create(created=full.world.store.now())
    state = '<span class="condition finished">finished</span>'
    check_page(operator.get(page(row)), "It has no nodes.", state)


@pytest.mark.slow
def test_nodes_are_listed_and_exported_to_mermaid(graph, operator):
    answer = operator.get(page(graph, "graph.mmd"))
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert f"{graph.uuid}.mmd" in answer.headers["Content-Disposition"]
    assert answer.content.startswith(b"flowchart LR\n")
    nodes = page(graph, "nodes/")
    check_page(operator.get(nodes), "1 other</td>", ESCAPED)
    for query, count in (("", 6), ("state=ACCEPTED", 2), ("type=tests.add", 0), ("name=part", 3)):
        assert nodes_in(operator.get(f"{nodes}?{query}")) == count, query


def test_the_graph_page_refreshes_and_offers_only_actions_that_have_an_effect(full, operator):
    """A request for another action returns 409 (G6). An ended graph is not refreshed."""
    row = submitted("one", {"only": echo})
    cancel, redrive = (f'action="{page(row, name)}"' for name in ("cancel/", "redrive/"))
    parts = 'hx-trigger="every 2s, shown"', cancel
    check_page(operator.get(page(row)), *parts, lacks=['id="redrive"'])
    refused = operator.post(page(row, "redrive/"))
    check_page(refused, "none of its nodes is FAILED", status=409)
    full.move_node(row, "only", Event.START, Event.FAIL, reason=Reason.ERROR)
    parts = '<span class="condition failed">failed</span>', redrive
    check_page(operator.get(page(row)), *parts, lacks=["hx-get", 'id="cancel"'])


def test_cancelling_a_graph_asks_for_confirmation(graph, operator):
    """The log of each node names the user (G6)."""
    check_page(operator.post(page(graph, "cancel/")), 'name="sure"')
    assert Task.objects.filter(waits__gt=0).count() == 2
    done = operator.post(page(graph, "cancel/"), {"sure": "yes"}, follow=True)
    assert done.redirect_chain == [(page(graph), 302)]
    check_page(done, "Nodes cancelled: 3.", "told to cancel", lacks=['id="cancel"'])
    log = LogRecord.objects.filter(instance__node__graph=graph, who="user root via page")
    assert set(log.values_list("instance__node__name", flat=True)) == {"part-2", "merge", MARKUP}


def test_lists_show_no_due_time_for_a_blocked_node(world, operator):
    queue.register_all()
    submitted("chain", {"first": echo, "second": echo}, [("first", "second")])
    check_page(operator.get("/atp/"), lacks=["the next"])
    second = Instance.objects.get(node__name="second")
    shown = operator.get(f"/atp/instances/{second.uuid}/")
    check_page(shown, "It waits for first.", lacks=["9999"])
    rows = operator.get("/atp/instances/?state=ACCEPTED").context["page"].rows
    assert [row.due is None for row in rows] == [True, False]

"""The picture of a graph in a browser follows the graph."""

from itertools import pairwise

from playwright.sync_api import expect

from atp import Graph
from atp.states import Event

from ..app.tasks import echo
from ..populated import submitted
from .chromium import PHONE
from .test_refreshing import let_it_look


def box(page, name):
    return page.locator("svg g.box").filter(has=page.get_by_text(name, exact=True))


def test_the_picture_of_a_graph_follows_its_progress(page, atpd):
    with Graph("followed") as graph:
        first = graph.add(echo, name="first", said="x")
        parts = graph.map(echo, [{"number": number} for number in range(30)], after=first)
        graph.add(echo, name="last", after=parts)
    page.goto(f"/atp/graphs/{graph.row.uuid}/")
    expect(box(page, "last")).to_contain_text("accepted, waits for 30")
    atpd(processes=1)
    expect(box(page, "last")).to_contain_text("finished")
    expect(box(page, "tests.echo × 30")).to_contain_text("30 finished")
    expect(page.locator(".head")).to_contain_text("finished")
    box(page, "tests.echo × 30").click()
    page.wait_for_url("**/nodes/?type=tests.echo")
    # A box leads to its Instance by the keyboard, too.
    page.goto(f"/atp/graphs/{graph.row.uuid}/")
    page.locator("svg a").filter(has_text="first").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/instances/*/")
    page.goto(f"/atp/graphs/{graph.row.uuid}/nodes/?type=tests.echo")
    page.get_by_role("link", name="echo-7", exact=True).click()
    page.wait_for_url("**/instances/*/")
    page.get_by_role("link", name="followed").click()
    page.wait_for_url(f"**/graphs/{graph.row.uuid}/")


def test_the_picture_keeps_its_scroll_position_on_refresh(visit, operator, full):
    names = [f"step-{number}" for number in range(8)]
    edges = list(pairwise(names))
    graph = submitted("long", dict.fromkeys(names, echo), edges)
    page = visit(operator, viewport=PHONE)
    page.clock.install()
    page.goto(f"/atp/graphs/{graph.uuid}/")
    page.locator("#picture").evaluate("(part) => part.scrollTo(600, 0)")
    full.move_node(graph, "step-0", Event.START, Event.FINISH)
    let_it_look(page)
    expect(box(page, "step-0")).to_contain_text("finished")
    assert page.locator("#picture").evaluate("(part) => part.scrollLeft") == 600

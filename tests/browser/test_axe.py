"""All pages follow the rules of axe-core for keyboards, screen readers and small screens."""

from datetime import timedelta

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from atp import queue
from atp.states import State

from ..views.pages import SHOWN
from .chromium import LOOKS

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("look", LOOKS)
def test_no_page_violates_the_axe_rules(visit, operator, full, look):
    """No page runs scripts that users have entered (G14), and each title names its page."""
    own = {shown.path: shown.address(full) for shown in SHOWN}
    queue.hold("tests.add", reason="for a while")
    queue.limit("tests.echo", max_running=5)
    gone = full.world.host("tests.add", name="gone")
    full.world.store.daemons.leave(gone.uuid)
    for number in range(5):
        queue.hold("tests.echo", f"lane {number}", until=timedelta(hours=1))
    page = visit(operator, **LOOKS[look])
    found = {}
    paths = own | {state: f"/atp/instances/{full[state].uuid}/" for state in State}
    paths["gone"] = f"/atp/daemons/{gone.uuid}/"
    paths["newest"] = f"/atp/instances/{full[State.FAILED].uuid}/log/?order=newest"
    paths |= {"login": "/login/", "missing": "/atp/instances/nothing/"}
    for name, path in paths.items():
        page.goto(path)
        # Strict: there is one and no second.
        heading = page.get_by_role("heading", level=1)
        expect(heading).to_be_visible()
        assert name not in own or page.title().split()[0] in heading.inner_text(), name
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        for each in violations(page):
            places = [node["html"][:150] for node in each["nodes"][:3]]
            found[name, each["id"], each["impact"]] = places
    assert found == {}
    # What is wrong is found.
    page.evaluate("document.documentElement.removeAttribute('lang')")
    assert "html-has-lang" in {each["id"] for each in violations(page)}


# What somebody can operate, if it is shown and not disabled. Radio buttons of a group are one.
CONTROLS = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']"
MARK_ALL = """selector => {
    let number = 0;
    for (const each of document.querySelectorAll(selector)) {
        if (each.checkVisibility() && !each.disabled) { each.dataset.control = ++number; }
    }
    return number;
}"""
FOCUSED = "() => Number(document.activeElement.dataset.control || 0)"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_each_control_of_a_page_is_reached_by_the_tab_key(visit, operator, full):
    paths = {shown.path: shown.address(full) for shown in SHOWN}
    page = visit(operator, **LOOKS["light"])
    # Nothing may be replaced while the focus walks: htmx replaces nothing by an empty answer.
    page.route("**/*", lambda r: r.fulfill(status=204) if is_refresh(r) else r.continue_())
    missed = {}
    for name, path in paths.items():
        page.goto(path)
        count = page.evaluate(MARK_ALL, CONTROLS)
        reached = set()
        for _ in range(count + 5):
            page.keyboard.press("Tab")
            reached.add(page.evaluate(FOCUSED))
        if left := set(range(1, count + 1)) - reached:
            find = "each => document.querySelector(`[data-control='${each}']`).outerHTML"
            missed[name] = [page.evaluate(find, each)[:150] for each in sorted(left)]
    assert missed == {}


def is_refresh(route):
    return "hx-request" in route.request.headers


def violations(page):
    return Axe().run(page, options={"runOnly": TAGS}).response["violations"]

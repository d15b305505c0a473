"""What refreshes itself keeps out of the way, and does not pretend to be fresh."""

import pytest
from playwright.sync_api import expect

from ..app.tasks import echo

# Longer than any part waits until it looks again, in milliseconds.
A_WHILE = 3_000


@pytest.fixture
def overview(page):
    """The overview of an empty queue, in a time of its own."""
    page.clock.install()
    page.goto("/atp/")
    return page


def due(page):
    """The number of tasks that are due, as the page has it."""
    return page.locator(".tiles li").first.locator("b")


def let_it_look(page):
    """Wait until a part has asked, and the answer has been dealt with."""
    with page.expect_response(lambda answer: answer.request.headers.get("hx-request") == "true"):
        page.clock.fast_forward(A_WHILE)
    page.clock.run_for(500)


def test_text_that_is_selected_stays(overview):
    overview.evaluate("getSelection().selectAllChildren(document.querySelector('.tiles'))")
    echo.enqueue()
    let_it_look(overview)
    assert due(overview).text_content() == "0"
    assert overview.evaluate("getSelection().toString()")
    overview.evaluate("getSelection().removeAllRanges()")
    overview.clock.fast_forward(A_WHILE)
    expect(due(overview)).to_have_text("1")


def test_a_click_gets_through(overview):
    """The link that the button went down on is still there when it comes up."""
    link = overview.get_by_role("link", name="running")
    box = link.bounding_box()
    overview.mouse.move(box["x"] + 5, box["y"] + 5)
    overview.mouse.down()
    echo.enqueue()
    let_it_look(overview)
    assert due(overview).text_content() == "0"
    overview.mouse.up()
    overview.wait_for_url("**/instances/?state=RUNNING")


def test_it_is_told_when_the_server_does_not_answer(visit, operator, forgive):
    page = visit(operator)
    forgive("Failed to load resource", "htmx:")
    page.clock.install()
    page.goto("/atp/")
    told = page.get_by_role("alert")
    expect(told).to_be_hidden()
    page.route("**/atp/", lambda route: route.abort())
    page.clock.fast_forward(A_WHILE)
    expect(told).to_contain_text("does not answer")
    page.unroute("**/atp/")
    page.clock.fast_forward(A_WHILE)
    expect(told).to_be_hidden()


def test_a_login_that_has_expired_is_asked_for_again(page, forgive):
    forgive("401", "htmx:")
    page.clock.install()
    page.goto("/atp/")
    page.context.clear_cookies()
    page.clock.fast_forward(A_WHILE)
    expect(page.get_by_role("button", name="Log in")).to_be_visible()


def test_the_focus_stays_where_it_was(overview):
    """Whoever goes through the page by keyboard gets past what refreshes itself."""
    link = overview.get_by_role("link", name="running")
    link.focus()
    echo.enqueue()
    let_it_look(overview)
    expect(due(overview)).to_have_text("1")
    expect(overview.get_by_role("link", name="running")).to_be_focused()


def test_all_that_is_selected_stays(overview):
    overview.keyboard.press("Control+a")
    echo.enqueue()
    let_it_look(overview)
    assert due(overview).text_content() == "0"
    assert "Overview" in overview.evaluate("getSelection().toString()")


def test_the_space_bar_gets_through(overview):
    """The button that it went down on is still there when it comes up."""
    overview.get_by_role("link", name="running").focus()
    overview.keyboard.down(" ")
    echo.enqueue()
    let_it_look(overview)
    assert due(overview).text_content() == "0"
    overview.keyboard.up(" ")
    overview.clock.fast_forward(A_WHILE)
    expect(due(overview)).to_have_text("1")


def test_a_hidden_tab_does_not_ask(overview):
    hide = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => %s})"
    asked = []

    def note(request):
        if "/static/" not in request.url:  # the browser asks for its icon when it likes
            asked.append(request.url)

    overview.on("request", note)
    overview.evaluate(hide % "true")
    overview.clock.fast_forward(A_WHILE)
    overview.clock.run_for(1000)
    assert asked == []
    echo.enqueue()
    overview.evaluate(hide % "false")
    overview.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(due(overview)).to_have_text("1")

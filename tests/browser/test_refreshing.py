"""Pages refresh themselves without disturbing the user."""

import pytest
from playwright.sync_api import expect

from ..app.tasks import echo
from ..app.tasks_daemon import steps

# Longer than any part waits until it looks again, in milliseconds.
A_WHILE = 3_000


@pytest.fixture
def overview(page):
    """The overview page of an empty queue, with a clock that the test controls."""
    page.clock.install()
    page.goto("/atp/")
    return page


def due(page):
    """The number of due tasks that the page shows."""
    return page.locator(".tiles li").first.locator("b")


def let_it_look(page):
    """Wait until a part of the page has been refreshed."""
    with page.expect_response(lambda answer: answer.request.headers.get("hx-request") == "true"):
        page.clock.fast_forward(A_WHILE)
    page.clock.run_for(500)


def test_the_progress_bar_moves_without_a_reload(page, atpd, tmp_path):
    """The test marks the page to see that the browser does not reload it."""
    atpd(processes=1)
    instance = steps.enqueue(folder=str(tmp_path))
    page.goto(f"/atp/instances/{instance.uuid}/")
    page.evaluate("window.marked = true")
    bar = page.get_by_role("progressbar")
    for number, value in ((1, "0.250"), (2, "0.500"), (3, "0.750")):
        (tmp_path / str(number)).touch()
        expect(bar).to_have_attribute("value", value)
        expect(page.get_by_text(f"step {number}")).to_be_visible()
        expect(page.locator(".head")).to_contain_text("RUNNING")
    (tmp_path / "4").touch()
    expect(page.locator(".head")).to_contain_text("FINISHED")
    assert page.evaluate("window.marked === true")
    # What is over does not ask any more.
    expect(page.locator("[hx-get]")).to_have_count(0)


def test_refreshing_waits_while_text_is_selected(overview):
    """The selection is either a part of the page or the whole page."""
    part = "getSelection().selectAllChildren(document.querySelector('.tiles'))"
    selecting = (lambda: overview.evaluate(part), lambda: overview.keyboard.press("Control+a"))
    for number, select in enumerate(selecting):
        select()
        echo.enqueue()
        let_it_look(overview)
        assert due(overview).text_content() == str(number)
        assert overview.evaluate("getSelection().toString()")
        overview.evaluate("getSelection().removeAllRanges()")
        overview.clock.fast_forward(A_WHILE)
        expect(due(overview)).to_have_text(str(number + 1))


def test_a_list_does_not_refresh_while_something_is_ticked(page, world):
    echo.enqueue()
    page.clock.install()
    page.goto("/atp/instances/")
    ticks = page.locator("[name=ticked]")
    ticks.check()
    echo.enqueue()
    with page.expect_response(lambda answer: answer.request.headers.get("hx-request") == "true"):
        page.clock.fast_forward(6_000)
    page.clock.run_for(500)
    expect(ticks).to_be_checked()
    ticks.uncheck()
    page.clock.fast_forward(6_000)
    expect(ticks).to_have_count(2)


def test_a_refresh_keeps_the_focus_and_waits_while_a_key_or_button_is_down(overview):
    """A keyboard user can move past a part that refreshes itself.

    A button that was pressed down is still there when the key or the mouse is released.
    """
    link = overview.get_by_role("link", name="running")
    link.focus()
    echo.enqueue()
    let_it_look(overview)
    expect(due(overview)).to_have_text("1")
    expect(link).to_be_focused()
    overview.keyboard.down(" ")
    echo.enqueue()
    let_it_look(overview)
    assert due(overview).text_content() == "1"
    overview.keyboard.up(" ")
    overview.clock.fast_forward(A_WHILE)
    expect(due(overview)).to_have_text("2")
    link.scroll_into_view_if_needed()
    box = link.bounding_box()
    overview.mouse.move(box["x"] + 5, box["y"] + 5)
    overview.mouse.down()
    echo.enqueue()
    let_it_look(overview)
    assert due(overview).text_content() == "2"
    overview.mouse.up()
    overview.wait_for_url("**/instances/?state=RUNNING")


def test_failed_refreshes_are_reported_on_the_page(overview, complaints):
    """The page says that the server does not answer.

    After a lost session it shows the login form.
    """
    complaints.forgive("Failed to load resource", "401", "htmx:")
    told = overview.get_by_role("alert")
    expect(told).to_be_hidden()
    overview.route("**/atp/", lambda route: route.abort())
    overview.clock.fast_forward(A_WHILE)
    expect(told).to_contain_text("does not answer")
    overview.unroute("**/atp/")
    overview.clock.fast_forward(A_WHILE)
    expect(told).to_be_hidden()
    overview.context.clear_cookies()
    overview.clock.fast_forward(A_WHILE)
    expect(overview.get_by_role("button", name="Log in")).to_be_visible()


def test_a_hidden_tab_sends_no_requests(overview):
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

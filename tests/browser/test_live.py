"""Pages that follow what happens, without being loaded anew."""

import pytest
from playwright.sync_api import expect

from atp.states import State

from ..app.tasks import echo
from ..app.tasks_daemon import steps


@pytest.fixture
def same_page():
    """Return a function that marks a page, and one that tells if it is still that page."""

    def mark(page):
        page.evaluate("window.marked = true")
        navigations = []
        page.on("framenavigated", lambda frame: navigations.append(frame.url))
        return lambda: page.evaluate("window.marked === true") and not navigations

    return mark


def test_the_progress_of_a_task_moves_while_one_looks(page, atpd, tmp_path, same_page):
    atpd(processes=1)
    instance = steps.enqueue(folder=str(tmp_path))
    page.goto(f"/atp/instances/{instance.uuid}/")
    is_same = same_page(page)
    bar = page.get_by_role("progressbar")
    for number, value in ((1, "0.250"), (2, "0.500"), (3, "0.750")):
        (tmp_path / str(number)).touch()
        expect(bar).to_have_attribute("value", value)
        expect(page.get_by_text(f"step {number}")).to_be_visible()
        expect(page.locator(".head")).to_contain_text("RUNNING")
    (tmp_path / "4").touch()
    expect(page.locator(".head")).to_contain_text("FINISHED")
    assert is_same()
    # What is over does not ask any more.
    expect(page.locator("[hx-get]")).to_have_count(0)


@pytest.mark.parametrize("path", ["/atp/", "/atp/instances/"])
def test_lists_show_what_has_come(page, same_page, path):
    # In the browser's time, so that nobody has to wait for its next look.
    page.clock.install()
    page.goto(path)
    is_same = same_page(page)
    expect(page.get_by_role("cell", name="tests.echo")).to_have_count(0)
    echo.enqueue()
    page.clock.fast_forward(10_000)
    expect(page.get_by_role("cell", name="tests.echo")).to_be_visible()
    assert is_same()


def test_the_button_of_a_failed_one_sends_it_back(page, full):
    page.goto("/atp/instances/?state=FAILED")
    page.get_by_role("table").get_by_role("link").first.click()
    expect(page.locator(".head")).to_contain_text("FAILED")
    page.get_by_role("button", name="Redrive").click()
    expect(page.get_by_role("status")).to_contain_text("back in the queue")
    expect(page.locator(".head")).to_contain_text("ACCEPTED")
    expect(page.get_by_role("button", name="Redrive")).to_have_count(0)
    assert full[State.FAILED].state == State.ACCEPTED

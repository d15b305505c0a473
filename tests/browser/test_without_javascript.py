"""The most frequent actions work without JavaScript, using forms and links only."""

import pytest
from playwright.sync_api import expect

from atp import queue
from atp.models import Instance
from atp.states import State

from ..app.tasks import echo
from .conftest import PASSWORD


@pytest.fixture
def page(visit, operator):
    page = visit(operator, java_script_enabled=False)
    # That it is off is what everything here is about.
    page.goto("data:text/html,<p>off</p><script>document.body.textContent = 'on'</script>")
    expect(page.locator("body")).to_have_text("off")
    return page


def test_login_and_logout_work_without_javascript(visit, operator):
    page = visit(java_script_enabled=False)
    page.goto("/atp/types/")
    page.get_by_label("Username").fill(operator.username)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Types")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()


def test_filters_and_paging_work_without_javascript(page, full):
    echo.enqueue_many({"number": n} for n in range(60))
    page.goto("/atp/instances/")
    rows = page.get_by_role("table").locator("tbody").get_by_role("row")
    page.get_by_role("navigation", name="States").get_by_role("link", name="FAILED").click()
    page.get_by_label("Collection", exact=True).fill("books")
    page.get_by_role("button", name="Filter").click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("FAILED")
    page.goto("/atp/instances/?state=ACCEPTED&type=tests.echo")
    newest = rows.count()
    page.get_by_role("link", name="Older").click()
    expect(rows).to_have_count(60 - newest)
    tab = page.get_by_role("navigation", name="States").locator("[aria-current]")
    expect(tab).to_contain_text("ACCEPTED")
    expect(page.get_by_role("link", name="Older")).to_have_count(0)
    page.get_by_role("link", name="Newer").click()
    expect(rows).to_have_count(newest)


def test_ticked_instances_are_cancelled_without_javascript(page, world):
    echo.enqueue_many([{}] * 3)
    page.goto("/atp/instances/?state=ACCEPTED")
    page.locator("[name=ticked]").first.check()
    page.get_by_role("button", name="Cancel what is ticked").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Cancel what is ticked")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("status")).to_have_text("1 cancelled.")
    assert Instance.objects.failed().count() == 1


def test_the_forms_to_enqueue_change_and_delete_work_without_javascript(page, world):
    # The second time the identifier is taken, which leads to who has it.
    for role in ("status", "alert"):
        page.goto("/atp/types/tests.add/")
        page.get_by_role("link", name="Enqueue", exact=True).click()
        page.get_by_label("Inputs", exact=True).fill('{"first": 1, "second": 2}')
        page.get_by_label("Identifier", exact=True).fill("by hand")
        page.get_by_role("button", name="Enqueue").click()
        expect(page.get_by_role(role).first).to_be_visible()
    made = Instance.objects.get()
    assert (made.identifier, made.inputs.value) == ("by hand", {"first": 1, "second": 2})
    page.get_by_role("alert").get_by_role("link").click()
    expect(page.get_by_text(str(made.uuid))).to_be_visible()
    page.get_by_role("link", name="Change").click()
    page.get_by_label("Priority").fill("7")
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_role("status")).to_have_text("It is changed.")
    assert queue.get(made.uuid).priority == 7
    page.get_by_role("link", name="Delete").click()
    page.get_by_role("link", name="Leave it as it is").click()
    page.get_by_role("link", name="Delete").click()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("status")).to_have_text(f"{made.uuid} is removed.")
    assert not Instance.objects.exists()


def test_redriving_and_commanding_a_daemon_work_without_javascript(page, full):
    failed = full[State.FAILED]
    page.goto(f"/atp/instances/{failed.uuid}/")
    page.get_by_role("button", name="Redrive").click()
    expect(page.get_by_role("status")).to_contain_text("back in the queue")
    assert queue.get(failed.uuid).state == State.ACCEPTED
    page.goto("/atp/daemons/")
    page.get_by_role("link", name="host:1").click()
    page.get_by_role("button", name="Go quiet").click()
    expect(page.get_by_role("status")).to_have_text("It has been told to go quiet.")
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("status")).to_have_text("It has been told to stop.")
    assert full.host.row.request == "stop"

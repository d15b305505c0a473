"""All pages do their work with JavaScript switched off."""

import pytest
from playwright.sync_api import expect

from atp import queue
from atp.models import Instance
from atp.states import State

from ..app.tasks import add, echo
from .pages import NAMES, address


@pytest.fixture
def page(visit, operator):
    page = visit(operator, java_script_enabled=False)
    # That it is off is what everything here is about.
    page.goto("data:text/html,<p>off</p><script>document.body.textContent = 'on'</script>")
    expect(page.locator("body")).to_have_text("off")
    return page


def test_look(page, full):
    for name in NAMES:
        assert page.goto(address(name, full)).ok, name
        expect(page.get_by_role("heading", level=1)).to_be_visible()


def test_look_at_a_picture(page, full):
    made = full.finished(content_type="image/png", data=dot(), size=len(dot()))
    page.goto(f"/atp/instances/{made.uuid}/")
    expect(page.get_by_role("img", name="The response")).to_have_js_property("naturalWidth", 1)


def test_filter(page, full):
    page.goto("/atp/instances/")
    rows = page.get_by_role("table").locator("tbody").get_by_role("row")
    expect(rows).to_have_count(len(full.by_state))
    page.get_by_label("State").select_option("FAILED")
    page.get_by_label("Collection", exact=True).fill("books")
    page.get_by_role("button", name="Filter").click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("FAILED")
    page.get_by_role("link", name="Show all").click()
    expect(rows).to_have_count(len(full.by_state))


def test_turn_pages(page):
    there = {str(made.uuid) for made in echo.enqueue_many({"number": n} for n in range(60))}
    page.goto("/atp/instances/?state=ACCEPTED")
    rows = page.get_by_role("table").locator("tbody").get_by_role("row")
    newest = uuids(rows)
    page.get_by_role("link", name="Older").click()
    expect(rows).to_have_count(60 - len(newest))
    expect(page.get_by_label("State")).to_have_value("ACCEPTED")
    expect(page.get_by_role("link", name="Older")).to_have_count(0)
    assert sorted(newest + uuids(rows)) == sorted(there)
    page.get_by_role("link", name="Newer").click()
    expect(rows).to_have_count(len(newest))


def uuids(rows):
    """Return the uuids of the Instances of a list; as shown, shortened, two may look alike."""
    links = rows.get_by_role("link")
    return links.evaluate_all("links => links.map(link => link.title)")


def test_enqueue(page):
    page.goto("/atp/types/tests.add/")
    page.get_by_role("link", name="Enqueue", exact=True).click()
    page.get_by_label("Inputs", exact=True).fill('{"first": 1, "second": 2}')
    page.get_by_label("Identifier", exact=True).fill("by hand")
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_role("status")).to_have_text("Enqueued.")
    made = Instance.objects.get()
    assert (made.identifier, made.inputs.value) == ("by hand", {"first": 1, "second": 2})


def test_a_taken_identifier_leads_to_who_has_it(page):
    there = add.using(identifier="by hand").enqueue(1)
    page.goto("/atp/types/tests.add/enqueue/")
    page.get_by_label("Inputs", exact=True).fill('{"first": 1}')
    page.get_by_label("Identifier", exact=True).fill("by hand")
    page.get_by_role("button", name="Enqueue").click()
    page.get_by_role("alert").get_by_role("link").click()
    expect(page.get_by_text(str(there.uuid))).to_be_visible()


def test_redrive(page, full):
    failed = full[State.FAILED]
    page.goto(f"/atp/instances/{failed.uuid}/")
    page.get_by_role("button", name="Redrive").click()
    expect(page.get_by_role("status")).to_contain_text("back in the queue")
    assert queue.get(failed.uuid).state == State.ACCEPTED


def test_run_now_and_change(page, full):
    waiting = full[State.ACCEPTED]
    due = waiting.task.due_at
    page.goto(f"/atp/instances/{waiting.uuid}/")
    page.get_by_role("link", name="Change").click()
    page.get_by_label("Priority").fill("7")
    page.get_by_label("Collection").fill("books")
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_role("status")).to_have_text("It is changed.")
    changed = queue.get(waiting.uuid)
    assert (changed.priority, changed.collection) == (7, "books")
    assert changed.task.due_at == due
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_role("button", name="Run now")).to_have_count(0)
    assert queue.get(waiting.uuid).task.due_at < due


def test_delete(page, full):
    failed = full[State.FAILED]
    page.goto(f"/atp/instances/{failed.uuid}/")
    page.get_by_role("link", name="Delete").click()
    page.get_by_role("link", name="Leave it as it is").click()
    page.get_by_role("link", name="Delete").click()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("status")).to_have_text(f"{failed.uuid} is removed.")
    assert not Instance.objects.filter(uuid=failed.uuid).exists()


def test_a_daemon_goes_quiet_and_resumes(page, full):
    page.goto("/atp/daemons/")
    page.get_by_role("link", name="host:1").click()
    page.get_by_role("button", name="Go quiet").click()
    expect(page.get_by_role("status")).to_have_text("It has been told to go quiet.")
    assert full.host.row.request == "quiet"
    page.goto("/atp/")
    expect(page.get_by_text("claims anything")).to_be_visible()
    page.get_by_role("link", name="host:1").click()
    page.get_by_role("button", name="Resume").click()
    assert full.host.row.request == ""
    expect(page.get_by_role("button", name="Resume")).to_have_count(0)
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("status")).to_have_text("It has been told to stop.")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    assert full.host.row.request == "stop"


def dot():
    """A picture of one pixel."""
    from io import BytesIO

    from PIL import Image

    data = BytesIO()
    Image.new("L", (1, 1)).save(data, "PNG")
    return data.getvalue()

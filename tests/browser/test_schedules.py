"""From the form of a schedule to what became of its slots."""

import re

import pytest
from playwright.sync_api import expect

from atp import queue
from atp.models import Schedule, Slot
from atp.rows.schedule import Outcome

from ..helpers import wait_for


def test_a_schedule_is_made_run_and_paused_on_the_page(page, atpd):
    atpd(processes=1)
    page.goto("/atp/types/tests.echo/")
    page.get_by_role("link", name="Schedule", exact=True).click()
    page.get_by_label("Identifier").fill("each.second")
    page.get_by_label("Cron").fill("30 2 * * *")
    page.get_by_label("Timezone").fill("Europe/Vienna")
    page.get_by_role("button", name="Show next runs").click()
    expect(page.locator("#runs").get_by_role("row")).to_have_count(11)
    expect(page.locator("#runs")).to_contain_text("at 02:30 every day, Europe/Vienna")
    assert not Schedule.objects.filter(identifier="each.second").exists()
    page.get_by_label("Cron").fill("")
    page.get_by_label("Every").fill("1s")
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_role("status")).to_have_text("The schedule is made.")
    expect(page.get_by_role("cell", name="ENQUEUED").first).to_be_visible()
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_role("status")).to_contain_text("is enqueued")
    page.get_by_role("link", name="Pause").click()
    page.get_by_label("Reason").fill("storage moves")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text(re.compile("Paused since .*: storage moves"))).to_be_visible()
    # The page is not loaded anew: it follows what happens.
    expect(page.get_by_role("cell", name=re.compile("PAUSED × [23456789]"))).to_be_visible()
    expect(page.locator("svg.strip rect.paused")).to_have_count(1)
    assert Slot.objects.filter(outcome=Outcome.PAUSED).exists()
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".head .condition")).to_have_text("active")
    ran = Slot.objects.filter(outcome=Outcome.ENQUEUED).count()
    wait_for(lambda: Slot.objects.filter(outcome=Outcome.ENQUEUED).count() > ran)
    queue.pause_schedule("each.second")


@pytest.mark.parametrize("width", [1200, 390], ids=["desk", "phone"])
def test_a_schedule_whose_words_are_long(visit, operator, full, width):
    row = queue.create_schedule("l" * 150, "tests.echo", every=1, inputs={"x": "y" * 500})
    queue.pause_schedule(row.identifier, reason="r" * 200, by="b" * 200)
    page = visit(operator, viewport={"width": width, "height": 800})
    for path in ("/atp/schedules/", f"/atp/schedules/{row.identifier}/", "/atp/types/tests.echo/"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


# The cells of cards whose label and content need more room than there is. They are laid out from
# the left for that: what sticks out on the left can be measured by nobody.
STICKING_OUT = """() => [...document.querySelectorAll("table.cards td")].filter(cell => {
    cell.style.justifyContent = "flex-start";
    return cell.scrollWidth > cell.clientWidth;
}).map(cell => cell.outerHTML.slice(0, 200))"""


def test_no_label_sticks_out_on_a_phone(visit, operator, full):
    row = queue.create_schedule("each.second", "tests.echo", every=1)
    Slot.objects.create(
        schedule=row, at=row.next_at, outcome=Outcome.PAUSED, decided=row.next_at, count=86400
    )
    page = visit(operator, viewport={"width": 390, "height": 844})
    sticking_out = {}
    for path in ("/atp/schedules/", f"/atp/schedules/{row.identifier}/", "/atp/types/tests.echo/"):
        page.goto(path)
        sticking_out[path] = page.evaluate(STICKING_OUT)
    assert not any(sticking_out.values()), sticking_out

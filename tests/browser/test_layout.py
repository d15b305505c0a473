"""The layout of the pages on a desktop, a tablet and a phone."""

import pytest
from playwright.sync_api import expect

from atp import queue
from atp.models import Daemon, Instance, Slot, Type
from atp.payload.json import to_json
from atp.schedules.models import Outcome
from atp.states import State

from ..populated import populate
from ..views.pages import SHOWN
from .chromium import DESK, PHONE

# As narrow as a window can be in which tables are no cards.
NARROW = {"width": 961, "height": 800}
TABLET = {"width": 768, "height": 1024}
SIZES = (DESK, NARROW, TABLET, PHONE)
# Nothing in it where a line could be broken.
LONG = "x" * 200
OF_A_LANE = tuple(f"/atp/types/tests.add/{name}/?collection={LONG}" for name in ("gate", "limit"))
REFUSING = ("/atp/instances/nothing/", "/atp/?nonsense=1", "/login/")
# The elements to blame, if the page can be scrolled to the side.
WIDER = """() => {
    const width = document.documentElement.clientWidth;
    const wide = [...document.querySelectorAll("body *")].filter(
        element => element.getBoundingClientRect().right > width + 1);
    return document.documentElement.scrollWidth > width
        ? wide.map(element => element.outerHTML.slice(0, 200)) : [];
}"""


@pytest.fixture
def full(world):
    """A queue in which each text has its maximum length."""
    full = populate(world)
    full.by_state[State.FAILED] = full.failed(identifier=LONG, collection=LONG)
    data = to_json({LONG: [LONG, LONG * 10]}).encode()
    full.by_state[State.FINISHED] = full.finished(
        content_type="application/json", data=data, size=len(data)
    )
    Instance.objects.filter(state=State.RUNNING).update(progress_message=LONG)
    engine = {"executor": "engine", "error": "", "address": f"tcp://{LONG}", "hosts": 2}
    engine |= {"places": 8, "room": 8, "resources": {LONG: 1.0}, "lacks": {}}
    row = Daemon.objects.first()
    workers = [each | {"host": LONG} for each in row.workers]
    Daemon.objects.update(
        host=LONG[:190], labels={"executor": "engine"}, engine=engine, workers=workers
    )
    queue.hold("tests.add", LONG, reason=LONG)
    queue.limit("tests.add", LONG, max_running=1)
    return full


@pytest.mark.slow
def test_no_page_is_wider_than_the_window(page, full):
    queue.create_schedule(LONG[:150], "tests.echo", every=1, inputs={"x": LONG * 2})
    queue.pause_schedule(LONG[:150], reason=LONG, by=LONG)
    paths = [shown.address(full) for shown in SHOWN]
    paths += [f"/atp/instances/{full[state].uuid}/" for state in State]
    paths += [*OF_A_LANE, f"/atp/schedules/{LONG[:150]}/", f"/atp/types/{LONG}/", *REFUSING]
    Type.objects.filter(identifier="tests.echo").update(identifier=LONG)
    wide = {}
    for path in paths:
        page.goto(path)
        heading = page.get_by_role("heading", level=1)
        expect(heading).to_be_visible()
        for size in SIZES:
            page.set_viewport_size(size)
            if found := page.evaluate(WIDER):
                wide[path, size["width"]] = found
    assert wide == {}
    # What is too wide is found.
    heading.evaluate("heading => heading.style.width = '2000px'")
    assert page.evaluate(WIDER) != []


# The lines of the header: how many of its parts begin below all that come before them.
LINES = """() => {
    let lines = 0, bottom = -1;
    const parts = [...document.querySelectorAll("header nav a, header .brand, header .user > *")]
        .map(part => part.getBoundingClientRect()).filter(box => box.height);
    for (const box of parts.sort((a, b) => a.top - b.top))
        if (box.top >= bottom - 4) { lines += 1; bottom = box.bottom; }
    return lines;
}"""


def test_header_takes_two_lines_at_most_on_a_tablet(page, full):
    page.goto("/atp/daemons/")
    page.set_viewport_size(TABLET)
    assert page.evaluate(LINES) <= 2


# The cells of cards whose label and content need more room than there is. They are laid out from
# the left for that: what sticks out on the left can be measured by nobody.
STICKING_OUT = """() => [...document.querySelectorAll("table.cards td")].filter(cell => {
    cell.style.justifyContent = "flex-start";
    return cell.scrollWidth > cell.clientWidth;
}).map(cell => cell.outerHTML.slice(0, 200))"""


def test_no_label_overflows_on_a_phone(visit, operator, world):
    queue.register_all()
    row = queue.create_schedule("each.second", "tests.echo", every=1)
    Slot.objects.create(
        schedule=row, at=row.next_at, outcome=Outcome.PAUSED, decided=row.next_at, count=86400
    )
    page = visit(operator, viewport=PHONE)
    for path in ("/atp/schedules/", f"/atp/schedules/{row.identifier}/", "/atp/types/tests.echo/"):
        page.goto(path)
        assert page.evaluate(STICKING_OUT) == [], path

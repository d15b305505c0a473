"""Pages at the width of a desk, a tablet and a phone."""

import pytest
from playwright.sync_api import expect

from atp import queue
from atp.models import Daemon, Instance, Type
from atp.payload.tagged_json import to_json
from atp.states import State

from ..populated import populate
from .pages import NAMES, address

DESK = {"width": 1200, "height": 800}
# As narrow as a window can be in which tables are no cards.
NARROW = {"width": 961, "height": 800}
TABLET = {"width": 768, "height": 1024}
PHONE = {"width": 390, "height": 844}
SIZES = {"desk": DESK, "narrow": NARROW, "tablet": TABLET, "phone": PHONE}
# Nothing in it where a line could be broken.
LONG = "x" * 200
OF_A_LANE = tuple(f"/atp/types/tests.add/{name}/?collection={LONG}" for name in ("gate", "limit"))
REFUSING = ("/login/", "/atp/instances/nothing/", "/atp/?nonsense=1")
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
    """A queue in which everything is as long as it may be."""
    full = populate(world)
    full.by_state[State.FAILED] = full.failed(identifier=LONG, collection=LONG)
    data = to_json({LONG: [LONG, LONG * 10]}).encode()
    full.by_state[State.FINISHED] = full.finished(
        content_type="application/json", data=data, size=len(data)
    )
    Instance.objects.filter(state=State.RUNNING).update(progress_message=LONG)
    Daemon.objects.update(host=LONG[:190])
    queue.hold("tests.add", LONG, reason=LONG)
    queue.limit("tests.add", LONG, max_running=1)
    return full


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_nothing_is_wider_than_the_window(visit, operator, full, size):
    page = visit(operator, viewport=size)
    of_instances = [f"/atp/instances/{full[state].uuid}/" for state in State]
    of_pages = [address(name, full) for name in NAMES]
    wide = {}
    for path in (*of_pages, *of_instances, *OF_A_LANE, *REFUSING):
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        wide[path] = page.evaluate(WIDER)
    assert {path: elements for path, elements in wide.items() if elements} == {}


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_a_long_type_does_not_widen_the_lists(visit, operator, full, size):
    Type.objects.filter(identifier="tests.echo").update(identifier="t" * 200)
    page = visit(operator, viewport=size)
    for path in ("/atp/", "/atp/instances/", "/atp/types/", "/atp/daemons/"):
        page.goto(path)
        assert page.evaluate(WIDER) == [], path


def test_what_is_too_wide_is_found(page):
    page.goto("/login/")
    page.get_by_role("heading", level=1).evaluate("heading => heading.style.width = '2000px'")
    assert page.evaluate(WIDER) != []


def test_one_can_tell_where_one_is(page, full):
    for name in NAMES:
        page.goto(address(name, full))
        expect(page.locator("html")).to_have_attribute("lang", "en")
        # Strict: there is one and no second.
        heading = page.get_by_role("heading", level=1).inner_text()
        assert page.title().split()[0] in heading, name

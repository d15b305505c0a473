"""Who gets to see which page, and what is left of it for somebody who may only look."""

import pytest
from playwright.sync_api import expect

from atp import queue
from atp.models import Instance
from atp.states import State

from .conftest import PASSWORD

OPERATING = ("Redrive", "Release", "Enqueue", "Enqueue again")


@pytest.mark.usefixtures("operator")
def test_a_user_logs_in_and_out(visit):
    page = visit()
    page.goto("/atp/types/")
    page.get_by_label("Username").fill("operator")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Types")).to_be_visible()
    page.get_by_role("navigation").get_by_role("link", name="Overview").click()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()


def test_somebody_who_may_only_look_sees_no_buttons(visit, reader, full):
    page = visit(reader)
    for path in (
        "/atp/",
        "/atp/types/",
        "/atp/types/tests.echo/",
        *(f"/atp/instances/{instance.uuid}/" for instance in full.by_state.values()),
    ):
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        for role in ("button", "link"):
            for name in OPERATING:
                expect(page.get_by_role(role, name=name, exact=True)).to_have_count(0)


@pytest.mark.parametrize("action", ["redrive", "release"])
def test_somebody_who_may_only_look_is_refused_a_direct_post(visit, reader, full, action):
    failed = full[State.FAILED]
    answer = _post(visit(reader), f"/atp/instances/{failed.uuid}/{action}/")
    assert (answer.status, "atp.operate" in answer.text()) == (403, True)
    assert queue.get(failed.uuid).state == State.FAILED


def test_somebody_who_may_only_look_cannot_enqueue_by_a_direct_post(visit, reader, full):
    before = Instance.objects.count()
    answer = _post(visit(reader), "/atp/types/tests.echo/enqueue/", inputs="{}")
    assert (answer.status, "atp.enqueue" in answer.text()) == (403, True)
    assert Instance.objects.count() == before


def _post(page, path, **data):
    """Post as the browser would, past all that the pages offer."""
    # A token from another page: what is tested is not the protection against forgery.
    page.goto("/login/")
    token = page.locator("main [name=csrfmiddlewaretoken]").input_value()
    return page.request.post(path, form={**data, "csrfmiddlewaretoken": token})

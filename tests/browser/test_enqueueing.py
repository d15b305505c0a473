"""Enqueueing in a browser, from the form of a Type to its picture."""

import json

import pytest
from playwright.sync_api import expect

from atp.models import Instance

from ..helpers import wait_for

IS_DRAWN = "image => image.complete && image.naturalWidth > 0"


@pytest.mark.slow
@pytest.mark.usefixtures("media")
def test_a_user_enqueues_a_hillshade_and_sees_the_picture(page, atpd):
    atpd(processes=1)
    page.goto("/atp/types/")
    page.get_by_label("Name contains").fill("hillshade")
    page.get_by_role("button", name="Filter").click()
    page.get_by_role("link", name="terrain.hillshade").click()
    page.get_by_role("link", name="Enqueue", exact=True).click()
    # The form begins with the defaults of the handler.
    inputs = page.get_by_label("Inputs", exact=True)
    assert json.loads(inputs.input_value())["azimuth"] == 315
    inputs.fill('{"azimuth": 90, "altitude": 20}')
    page.get_by_label("Collection").fill("tour")
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_role("status")).to_have_text("Enqueued.")
    picture = page.get_by_role("img", name="The response")
    expect(picture).to_be_visible(timeout=60_000)
    page.wait_for_function(IS_DRAWN, arg=picture.element_handle())
    expect(page.get_by_text("FINISHED").first).to_be_visible()
    made = Instance.objects.get()
    assert (made.inputs.value, made.collection) == ({"azimuth": 90, "altitude": 20}, "tour")
    assert made.created_by == "user operator via page"


def test_a_second_click_does_nothing_while_the_request_is_pending(page):
    page.goto("/atp/types/tests.add/enqueue/")
    page.get_by_label("Inputs", exact=True).fill('{"first": 1}')
    held = []

    def hold(route):
        if route.request.method == "POST":
            held.append(route)
        else:
            route.continue_()

    page.route("**/enqueue/", hold)
    button = page.get_by_role("button", name="Enqueue")
    button.scroll_into_view_if_needed()
    box = button.bounding_box()
    # A locator would wait for the answer.
    page.mouse.click(box["x"] + 5, box["y"] + 5)
    wait_for(lambda: page.mouse.move(0, 0) or held, what="the first request")
    page.mouse.click(box["x"] + 5, box["y"] + 5)
    held[0].continue_()
    expect(page.get_by_role("status")).to_have_text("Enqueued.")
    assert len(held) == 1
    assert Instance.objects.count() == 1

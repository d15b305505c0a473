"""What handlers and users have written never runs in the pages' own origin (G14)."""

from contextlib import suppress

import pytest
from playwright.sync_api import Error, expect

from atp.states import State

from ..populated import MARKUP
from .pages import NAMES, address

HTML = f"<!doctype html><p>foreign</p>{MARKUP}<img src=x onerror=alert('y')>"
SVG = (
    "<svg xmlns='http://www.w3.org/2000/svg' onload=\"alert('x')\">"
    f"{MARKUP}<text y='20'>foreign</text></svg>"
)
DOCUMENTS = {
    "text/html": HTML,
    "text/html; charset=utf-8": HTML,
    "TEXT/HTML": HTML,
    "application/xhtml+xml": HTML,
    "image/svg+xml": SVG,
    "text/xml": SVG,
    "nonsense": HTML,
}


# Where a response is to be had as it is.
RAW = ("/atp/instances/{}/response", "/atp/api/instances/{}/response")


@pytest.fixture
def stored(full):
    """Store a response of this content type; returns the uuid of its Instance."""

    def store(content_type, text):
        data = text.encode()
        made = full.finished(content_type=content_type, data=data, size=len(data))
        return made.uuid

    return store


def test_no_page_runs_what_others_have_written(page, full):
    of_instances = [f"/atp/instances/{full[state].uuid}/" for state in State]
    for path in (*(address(name, full) for name in NAMES), *of_instances):
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()


@pytest.mark.parametrize(("content_type", "text"), DOCUMENTS.items())
def test_a_document_is_shown_as_its_source_or_not_at_all(page, stored, content_type, text):
    page.goto(f"/atp/instances/{stored(content_type, text)}/")
    expect(page.get_by_text("FINISHED").first).to_be_visible()
    for drawn in ("iframe, object, embed", "p:text-is('foreign')", "svg:has-text('foreign')"):
        expect(page.locator(drawn)).to_have_count(0)


@pytest.mark.parametrize(("content_type", "text"), DOCUMENTS.items())
def test_a_document_is_downloaded_and_not_opened(page, stored, content_type, text):
    uuid = stored(content_type, text)
    page.goto("/atp/")
    where = page.url
    for raw in RAW:
        with page.expect_download() as started, suppress(Error):
            # The browser says that it did not go there.
            page.goto(raw.format(uuid))
        assert started.value.path().read_text() == text
        assert page.url == where


@pytest.mark.parametrize("raw", RAW)
@pytest.mark.parametrize("content_type", ["text/plain", "application/json"])
def test_what_is_opened_is_taken_for_what_it_says(page, stored, content_type, raw):
    answer = page.goto(raw.format(stored(content_type, HTML)))
    assert answer.ok
    assert answer.header_value("X-Content-Type-Options") == "nosniff"
    expect(page.locator("p:text-is('foreign'), img")).to_have_count(0)


@pytest.mark.parametrize("raw", RAW)
def test_a_document_that_is_framed_all_the_same_is_not_in_our_origin(page, stored, raw):
    headers = page.request.get(raw.format(stored("text/html", HTML))).headers
    assert "sandbox" in headers["content-security-policy"]
    assert "allow-" not in headers["content-security-policy"]


@pytest.mark.parametrize("raw", RAW)
def test_what_has_no_type_is_not_there(page, stored, raw):
    assert page.goto(raw.format(stored("", HTML))).status == 404

"""What handlers and users have written never runs in the pages' own origin (G14)."""

from contextlib import suppress

import pytest
from playwright.sync_api import Error, expect

from ..populated import MARKUP

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


def test_a_document_is_downloaded_and_never_opened(page, stored):
    """On a page it is shown as its source, or not at all."""
    for content_type, text in DOCUMENTS.items():
        uuid = stored(content_type, text)
        page.goto(f"/atp/instances/{uuid}/")
        where = page.url
        expect(page.get_by_text("FINISHED").first).to_be_visible()
        for drawn in ("iframe, object, embed", "p:text-is('foreign')", "svg:has-text('foreign')"):
            expect(page.locator(drawn)).to_have_count(0)
        for raw in RAW:
            with page.expect_download() as started, suppress(Error):
                # The browser says that it did not go there.
                page.goto(raw.format(uuid))
            assert started.value.path().read_text() == text
            assert page.url == where
            # Were it framed all the same, it would not be in our origin.
            headers = page.request.get(raw.format(uuid)).headers
            assert "sandbox" in headers["content-security-policy"]
            assert "allow-" not in headers["content-security-policy"]


def test_what_is_opened_is_taken_for_what_it_says(page, stored):
    for raw in RAW:
        for content_type in ("text/plain", "application/json"):
            answer = page.goto(raw.format(stored(content_type, HTML)))
            assert answer.ok
            assert answer.header_value("X-Content-Type-Options") == "nosniff"
            expect(page.locator("p:text-is('foreign'), img")).to_have_count(0)
        # What has no type is not there.
        assert page.goto(raw.format(stored("", HTML))).status == 404

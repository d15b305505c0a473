"""Content from handlers and users never runs in the origin of the pages (G14)."""

from contextlib import suppress

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


def stored(full, content_type, text):
    """Store a response with this content type; return the uuid of its Instance."""
    data = text.encode()
    return full.finished(content_type=content_type, data=data, size=len(data)).uuid


def test_a_document_is_downloaded_and_never_opened(page, full):
    """The page of its Instance shows the source of the document at most."""
    for content_type, text in DOCUMENTS.items():
        uuid = stored(full, content_type, text)
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


def test_the_browser_does_not_sniff_the_content_type(page, full):
    for raw in RAW:
        for content_type in ("text/plain", "application/json"):
            answer = page.goto(raw.format(stored(full, content_type, HTML)))
            assert answer.ok
            expect(page.locator("p:text-is('foreign'), img")).to_have_count(0)
        # What has no type is not there.
        assert page.goto(raw.format(stored(full, "", HTML))).status == 404

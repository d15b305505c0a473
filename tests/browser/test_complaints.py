"""What fails a test in a browser without its asking."""

import pytest

from .complaints import Complaints

CSP = "default-src 'none'; img-src 'self'"


@pytest.fixture
def complaints(browser):
    """Return a function that opens a page of this HTML and returns what was complained of."""

    def of(html, status=200):
        context = browser.new_context(base_url="http://pages.test")
        found = Complaints()
        found.listen_to(context)
        page = context.new_page()
        page.route("**/*", lambda route: route.fulfill(status=404))
        page.route(
            "**/page",
            lambda route: route.fulfill(
                status=status,
                body=html,
                content_type="text/html",
                headers={"Content-Security-Policy": CSP} if "inline" in html else {},
            ),
        )
        page.goto("/page")
        page.wait_for_load_state("networkidle")
        context.close()
        return found.all()

    return of


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<script>throw new Error('broken')</script>", "broken"),
        ("<script>console.error('not so')</script>", "not so"),
        ("<script>alert('let in')</script>", "a script said 'let in'"),
        ("<script>/* inline */ alert('let in')</script>", "Content Security Policy"),
        ("<p style='color: red'>inline</p>", "Content Security Policy"),
        ("<img src='/missing.png'>", "missing.png"),
    ],
)
def test_it_is_heard(complaints, html, expected):
    [complaint] = complaints(html)
    assert expected in complaint


@pytest.mark.parametrize("status", [200, 403, 500])
def test_a_page_in_order_and_a_page_refused_are_none(complaints, status):
    assert complaints("<p>Hello.", status) == []

"""Browser errors that fail a test even if the test does not look for them."""

from .complaints import Complaints

CSP = "default-src 'none'; img-src 'self'"
BAD = {
    "<script>throw new Error('broken')</script>": "broken",
    "<script>console.error('not so')</script>": "not so",
    "<script>alert('let in')</script>": "a script said 'let in'",
    "<script>/* inline */ alert('let in')</script>": "Content Security Policy",
    "<p style='color: red'>inline</p>": "Content Security Policy",
    "<img src='/missing.png'>": "missing.png",
}


def test_browser_errors_of_a_page_are_recorded(browser):
    """A correct page and one with an error status produce no complaint."""

    def of(html, status=200):
        context = browser.new_context(base_url="http://pages.test")
        found = Complaints()
        found.listen_to(context)
        page = context.new_page()
        page.route("**/*", lambda route: route.fulfill(status=404))
        headers = {"Content-Security-Policy": CSP} if "inline" in html else {}
        answer = {"status": status, "body": html, "headers": headers}
        page.route("**/page", lambda route: route.fulfill(content_type="text/html", **answer))
        page.goto("/page")
        page.wait_for_load_state("networkidle")
        context.close()
        return found.all()

    for html, expected in BAD.items():
        [complaint] = of(html)
        assert expected in complaint
    for status in (200, 403, 500):
        assert of("<p>Hello.", status) == []

"""Collects the errors and warnings that a browser reports for a page."""


class Complaints:
    """Errors and warnings in the console of a browser.

    They include scripts that raise, files that fail to load, and violations of the
    Content-Security-Policy. An open dialogue counts too, since scripts that tests try to inject
    open one.
    """

    def __init__(self):
        self._found = []
        self._refused = set()
        self._forgiven = ()

    def forgive(self, *words):
        """Ignore complaints that contain one of these words; the test causes them on purpose."""
        self._forgiven += words

    def listen_to(self, context):
        """Collect the complaints of all pages of a browser context."""
        context.on("console", self._hear)
        context.on("weberror", lambda error: self._found.append((str(error.error), "")))
        context.on("dialog", self._dismiss)
        context.on("response", self._answered)

    def all(self):
        """Return the complaints as sentences."""
        # A page that is refused as a whole is for the test to judge. An icon the
        # browser asks for by itself, at times, on pages that are not ours.
        told = [
            f"{text} ({url})" if url else text
            for text, url in self._found
            if url not in self._refused and not url.endswith("/favicon.ico")
        ]
        return [text for text in told if not any(word in text for word in self._forgiven)]

    def _hear(self, message):
        if message.type in ("error", "warning"):
            self._found.append((message.text, message.location["url"]))

    def _dismiss(self, dialog):
        self._found.append((f"a script said {dialog.message!r}", ""))
        dialog.dismiss()

    def _answered(self, response):
        if response.status >= 400 and response.request.is_navigation_request():
            self._refused.add(response.url)

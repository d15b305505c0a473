"""What is wrong with a page by the browser's own account."""


class Complaints:
    """Errors and warnings in the console of a browser.

    Among them are scripts that raise, files of a page that could not be loaded,
    and what the Content-Security-Policy has forbidden. A dialogue is one too: it
    is what the scripts open that tests try to smuggle in.
    """

    def __init__(self):
        self._found = []
        self._refused = set()
        self._forgiven = ()

    def forgive(self, *words):
        """Leave out what has one of these words in it: the test is about just that."""
        self._forgiven += words

    def listen_to(self, context):
        """Collect what comes of all pages of a browser context."""
        context.on("console", self._hear)
        context.on("weberror", lambda error: self._found.append((str(error.error), "")))
        context.on("dialog", self._dismiss)
        context.on("response", self._answered)

    def all(self):
        """Return them as sentences."""
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

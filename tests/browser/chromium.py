"""The Chromium that the tests use, which is installed if it is missing.

``python -m tests.browser.chromium`` only checks for the browser or installs it. The environment
variable ``CHROMIUM`` has the path of the browser; without it the PATH is searched.
``ATP_TEST_BROWSER=none`` is the only way to skip the tests that need a browser.
"""

import os
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

from .. import packages

NAMES = ("chromium", "chromium-browser", "google-chrome")
# Without a font a page is drawn, but nothing can be read on it.
PACKAGES = ("chromium", "fonts-dejavu-core")
# Playwright itself starts it headless, without the sandbox, which could not be
# set up as root and in containers, and without what it does by itself on the
# network. These two are for machines that have no graphics and no way out.
FLAGS = ("--disable-gpu", "--disable-quic")
OPT_OUT = "ATP_TEST_BROWSER=none"
DESK = {"width": 1200, "height": 800}
PHONE = {"width": 390, "height": 844}
# Options of a browser context.
LOOKS = {
    "light": {"viewport": DESK, "color_scheme": "light"},
    "dark": {"viewport": DESK, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light"},
}
ADVICE = (
    f"Install {' and '.join(PACKAGES)}, or name a browser that is there with CHROMIUM=/path/to/it; "
    f"{OPT_OUT} skips the tests that need one."
)


class NoBrowser(Exception):
    """No browser was found; the message says what to do."""


def is_wanted():
    """Return True if tests in a browser should run. Raises NoBrowser for an invalid setting."""
    given = os.environ.get("ATP_TEST_BROWSER", "")
    if given not in ("", "none"):
        raise NoBrowser(f"ATP_TEST_BROWSER={given!r}: must be none, or not set.")
    return not given


def find():
    """Return the path of a browser. Raises NoBrowser."""
    given = os.environ.get("CHROMIUM")
    found = next(filter(None, map(shutil.which, [given] if given else NAMES)), None)
    if found is not None:
        return Path(found)
    if given:
        raise NoBrowser(f"CHROMIUM={given}: there is no such program.")
    raise NoBrowser(f"There is none of {', '.join(NAMES)} on the PATH. {ADVICE}")


def ensure():
    """Return the path of a browser, installed with apt-get if necessary. Raises NoBrowser."""
    try:
        return find()
    except NoBrowser:
        if os.environ.get("CHROMIUM"):
            raise
    try:
        packages.install(*PACKAGES)
    except packages.NotInstalled as error:
        raise NoBrowser(f"There is no browser. {error} {ADVICE}") from None
    return find()


@contextmanager
def launched():
    """Run the browser under Playwright. Raises NoBrowser.

    Until the browser is closed, an event loop runs in this thread, so Django must be told to
    allow database queries.
    """
    from playwright.sync_api import sync_playwright

    path = find()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


def announced():
    """Install the browser if necessary, and return a line about it. Raises NoBrowser."""
    return f"browser: {ensure()}" if is_wanted() else f"{OPT_OUT}: no test runs in a browser"


def main():
    try:
        print(announced())
    except NoBrowser as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

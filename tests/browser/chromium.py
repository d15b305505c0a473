"""Which Chromium the tests drive, installed where there is none.

``python -m tests.browser.chromium`` makes sure of it by itself.

``CHROMIUM``
    The path of the browser; without it the PATH is searched.
``ATP_TEST_BROWSER``
    ``none`` skips the tests that need a browser. Nothing else does.
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
ADVICE = (
    f"Install {' and '.join(PACKAGES)}, or name a browser that is there with CHROMIUM=/path/to/it; "
    f"{OPT_OUT} skips the tests that need one."
)


class NoBrowser(Exception):
    """There is no browser; the message says what to do."""


def is_wanted():
    """Whether tests in a browser are to be run; raises NoBrowser if that is not clear."""
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
    """Return the path of a browser, installed with apt-get if need be. Raises NoBrowser."""
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
    """Run the browser, driven by Playwright. Raises NoBrowser.

    Until it is closed an event loop runs in this thread, and Django has to be
    told that the database may be used all the same.
    """
    from playwright.sync_api import sync_playwright

    path = find()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


def announced():
    """Make sure of a browser, if one is wanted, and return a line on it. Raises NoBrowser."""
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

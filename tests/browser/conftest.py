"""Fixtures for the tests in a browser.

The pages come from Django's live server on the database of the test. The test also uses that
database, to prepare data and to check the effect of clicks.
"""

from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.signals import request_finished, request_started
from django.test import Client
from playwright.sync_api import expect

from atp import queue

from ..helpers import DEADLINE, wait_for
from ..populated import populate
from . import chromium
from .complaints import Complaints

PASSWORD = "of the tests only"
HERE = Path(__file__).parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Move all browser tests together, so that the browser is started only once."""
    own = [item for item in items if item.path.is_relative_to(HERE)]
    if own:
        at = items.index(own[0])
        rest = [item for item in items if not item.path.is_relative_to(HERE)]
        items[:] = [*rest[:at], *own, *rest[at:]]


@pytest.fixture(scope="package")
def browser():
    """A browser that is shared by the tests of this package.

    Meanwhile an event loop runs in this thread, which must not affect other tests.
    """
    if not chromium.is_wanted():
        pytest.skip(chromium.OPT_OUT)
    with pytest.MonkeyPatch.context() as patch:
        # Django takes Playwright's event loop for one that the test runs in.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        expect.set_options(timeout=DEADLINE * 1000)
        with chromium.launched() as browser:
            yield browser


@pytest.fixture
def site(live_server):
    """The address of the pages; the teardown waits until no request is being served.

    A request in progress would meet a database that is being emptied.
    """
    serving = []

    def begin(sender, environ, **_):
        serving.append(environ["PATH_INFO"])

    def end(sender, **_):
        serving.pop()

    request_started.connect(begin)
    request_finished.connect(end)
    queue.register_all()
    yield live_server.url
    wait_for(lambda: not serving, what="the end of all requests")
    request_started.disconnect(begin)
    request_finished.disconnect(end)


@pytest.fixture
def complaints():
    """The complaints of browsers during the test."""
    return Complaints()


@pytest.fixture
def visit(browser, site, complaints):
    """A function that opens a page in its own profile: ``visit(user, java_script_enabled=False)``.

    The test fails if a page has :class:`Complaints`.
    """
    pages = []

    def open_page(user=None, **options):
        context = browser.new_context(base_url=site, **{"viewport": chromium.DESK, **options})
        context.set_default_timeout(DEADLINE * 1000)
        complaints.listen_to(context)
        if user is not None:
            context.add_cookies([_session(user, site)])
        pages.append(context.new_page())
        return pages[-1]

    yield open_page
    for page in pages:
        page.context.close()
    assert not complaints.all(), complaints.all()


@pytest.fixture
def page(visit, operator):
    """A page that is logged in as a superuser."""
    return visit(operator)


@pytest.fixture
def operator(transactional_db):
    """A superuser."""
    return User.objects.create_superuser("operator", password=PASSWORD)


@pytest.fixture
def full(world):
    """A queue with Instances in every state, and a daemon."""
    return populate(world)


def _session(user, site):
    """Return the session cookie of a user who is logged in."""
    client = Client()
    client.force_login(user)
    name = settings.SESSION_COOKIE_NAME
    return {"name": name, "value": client.cookies[name].value, "url": site}

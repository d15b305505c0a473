"""Fixtures of the tests in a browser.

The pages come from Django's live server, on the database of the test; the
test itself uses that database too, to prepare what is shown and to look at what
came of a click.
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
SIZE = {"width": 1200, "height": 800}
HERE = Path(__file__).parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Let all that need the browser follow each other, in whatever order: it is started once."""
    own = [item for item in items if item.path.is_relative_to(HERE)]
    if own:
        at = items.index(own[0])
        rest = [item for item in items if not item.path.is_relative_to(HERE)]
        items[:] = [*rest[:at], *own, *rest[at:]]


@pytest.fixture(scope="package")
def browser():
    """One browser, for as long as tests of this package follow each other.

    While it is there an event loop runs in this thread, which no other test is to meet.
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
    """The address of the pages; in the end nobody is being served any more.

    A request that is still under way would meet a database that is being emptied.
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
    """What browsers complain of during the test."""
    return Complaints()


@pytest.fixture
def visit(browser, site, complaints):
    """Open a page in a browser profile of its own: ``visit(user, java_script_enabled=False)``.

    The test fails if any had a reason for :class:`Complaints`.
    """
    pages = []

    def open_page(user=None, **options):
        context = browser.new_context(base_url=site, **{"viewport": SIZE, **options})
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
    """A page of somebody who may do everything."""
    return visit(operator)


@pytest.fixture
def operator(transactional_db):
    """A user who may do everything."""
    return User.objects.create_superuser("operator", password=PASSWORD)


@pytest.fixture
def full(world):
    """A queue with something of everything in it."""
    return populate(world)


def _session(user, site):
    """Return the cookie of a user who has logged in."""
    client = Client()
    client.force_login(user)
    name = settings.SESSION_COOKIE_NAME
    return {"name": name, "value": client.cookies[name].value, "url": site}

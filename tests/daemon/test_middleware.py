"""Middleware and carriers in real workers."""

import pytest
from django.utils import timezone, translation

from atp import queue
from tests.app.middleware import tenant
from tests.app.tasks_middleware import carried, carried_async, carried_on, carried_transactional

from .test_running import drain

CARRIERS = [
    *("atp.middleware.Language", "atp.middleware.TimeZone"),
    "tests.app.middleware.Tenant",
]


@pytest.fixture
def carrying(settings):
    """Enqueue in German, in Vienna, for a tenant."""
    settings.ATP = settings.ATP | {"CARRIERS": CARRIERS}
    token = tenant.set("esa")
    with translation.override("de"), timezone.override("Europe/Vienna"):
        yield
    tenant.reset(token)


def drain_with(atpd, *names):
    paths = [f"tests.app.middleware.{name}" for name in names]
    drain(atpd, processes=1, settings={"MIDDLEWARE": paths, "CARRIERS": CARRIERS})


def value(instance):
    instance.refresh_from_db()
    assert instance.state == "FINISHED", instance.log
    return queue.response(instance).value


def test_a_handler_has_what_its_enqueue_had(atpd, carrying):
    """Functions, coroutines, transactional Types; and what comes next has none of it."""
    with translation.override("en-us"), timezone.override("UTC"):
        token = tenant.set(None)
        plain = carried.enqueue()
        tenant.reset(token)
    made = [each.enqueue() for each in (carried, carried_async, carried_transactional)]
    on = carried_on.enqueue()
    last = carried.using(priority=-1).enqueue()
    drain_with(atpd)
    assert [value(each) for each in (*made, last)] == [["de", "Europe/Vienna", "esa"]] * 4
    # What a handler enqueues has the same.
    assert value(queue.get(value(on))) == ["de", "Europe/Vienna", "esa"]
    assert value(plain) == ["en-us", "UTC", None]

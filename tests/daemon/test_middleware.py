"""Middleware and carriers in real workers."""

import pytest
from django.contrib.auth.models import Group
from django.utils import timezone, translation

from atp import queue
from atp.models import Instance
from tests.app.middleware import tenant
from tests.app.tasks_middleware import carried, carried_async, carried_on, carried_transactional

pytestmark = pytest.mark.each_database

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


def drain(atpd, *names):
    paths = [f"tests.app.middleware.{name}" for name in names]
    given = {"MIDDLEWARE": paths, "CARRIERS": CARRIERS}
    daemon = atpd("--drain", settings=given, processes=1)
    assert daemon.wait() == 0, daemon.log_path.read_text()


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
    last = carried.using(priority=-1).enqueue()
    drain(atpd)
    assert [value(each) for each in (*made, last)] == [["de", "Europe/Vienna", "esa"]] * 4
    assert value(plain) == ["en-us", "UTC", None]


def test_what_a_handler_enqueues_has_the_same(atpd, carrying):
    made = carried_on.enqueue()
    drain(atpd)
    assert value(queue.get(value(made))) == ["de", "Europe/Vienna", "esa"]


def test_middleware_writes_in_the_transaction_of_its_attempt(atpd):
    """G7: what it writes is committed with the end, or not at all."""
    made = carried_transactional.enqueue()
    drain(atpd, "writes", "Inner")
    assert value(made) == {"wrapped": ["en-us", "UTC", None]}
    assert Group.objects.filter(name__startswith="before").count() == 1


def test_its_error_takes_the_transaction_back(atpd):
    """G7."""
    made = carried_transactional.enqueue()
    drain(atpd, "writes", "raises")
    assert Instance.objects.get(pk=made.pk).reason == "ERROR"
    assert not Group.objects.exists()
    assert "ValueError: of the middleware" in "".join(r.message for r in made.log)

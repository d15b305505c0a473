"""What a drain leaves as it was in the process, and what handlers tell others there."""

import logging
import signal

import pytest
from django.core.signals import got_request_exception
from django.http import HttpResponse
from django.test import RequestFactory, override_settings
from django.urls import path

from atp.testing import NotPossible
from tests.app import tasks_testing as tasks

pytestmark = [pytest.mark.django_db, pytest.mark.each_database]


def order(request):
    """A view that enqueues what is refused."""
    tasks.refused.enqueue()
    return HttpResponse("ordered")


urlpatterns = [path("order/", order)]


@override_settings(ROOT_URLCONF=__name__)
def test_an_error_of_a_handler_is_none_of_the_request(atp, client):
    with atp.inline(raises=False):
        assert client.get("/order/").content == b"ordered"
    assert RequestFactory().get("/order/").path == "/order/"
    assert atp.enqueued(tasks.refused)[0].retries == 1


def test_error_reporters_are_told(atp):
    told = []

    def receive(**facts):
        told.append(facts)

    got_request_exception.connect(receive)
    before = list(got_request_exception.receivers)
    try:
        tasks.refused.enqueue()
        atp.drain(raises=False)
        assert got_request_exception.receivers == before
    finally:
        got_request_exception.disconnect(receive)
    assert len(told) == 1


def test_logging_is_as_it_was(atp):
    root = logging.getLogger()
    before = root.level, list(root.handlers), [handler.level for handler in root.handlers]
    tasks.group.enqueue(name="a")
    atp.drain()
    after = root.level, list(root.handlers), [handler.level for handler in root.handlers]
    assert after == before


def test_an_alarm_of_the_test_goes_on(atp):
    """As that of pytest-timeout."""
    had = signal.setitimer(signal.ITIMER_REAL, 1000)
    try:
        tasks.messy.enqueue()
        atp.drain()
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        assert 0 < left <= 1000
    finally:
        signal.setitimer(signal.ITIMER_REAL, *had)


def test_what_the_database_refuses_and_a_handler_ignores(atp):
    """That is the end of the test's transaction, up to the attempt: Django's or PostgreSQL's."""
    tasks.caught.enqueue(name="a")
    with pytest.raises(NotPossible, match=r"transaction\.atomic\(\), or use TransactionTestCase"):
        atp.drain()
    assert atp.enqueued(tasks.caught)[0].reason == "ERROR"


@pytest.mark.django_db(transaction=True)
def test_the_same_without_a_transaction(atp):
    tasks.caught.enqueue(name="a")
    [run] = atp.drain()
    assert run.response == "caught"

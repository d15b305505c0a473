"""A drain restores the state of the process, and handlers cannot affect the test."""

import logging
import os
import signal

import pytest
from django.conf import settings
from django.core.signals import got_request_exception
from django.http import HttpResponse
from django.test import override_settings
from django.urls import path

from atp.testing import NotPossible
from tests.app import tasks_testing as tasks

pytestmark = pytest.mark.django_db


def order(request):
    """A view that enqueues a Task whose handler fails."""
    tasks.refused.enqueue()
    return HttpResponse("ordered")


urlpatterns = [path("order/", order)]


@override_settings(ROOT_URLCONF=__name__)
def test_an_error_of_a_handler_reaches_error_reporters_but_not_the_request(atp, client):
    with atp.inline(raises=False):
        assert client.get("/order/").content == b"ordered"
    assert atp.enqueued(tasks.refused)[0].retries == 1
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


def logging_now():
    root = logging.getLogger()
    return root.level, list(root.handlers), [handler.level for handler in root.handlers]


def test_a_handler_changes_nothing_in_the_process_of_the_test(atp):
    """An alarm, such as that of pytest-timeout, and the logging setup are restored too."""
    before, logged = (os.getcwd(), os.umask(0o022)), logging_now()
    had = signal.setitimer(signal.ITIMER_REAL, 1000)
    token = tasks.TENANT.set("of the test")
    try:
        tasks.messy.enqueue()
        tasks.seen.enqueue()
        runs = {run.type: run for run in atp.drain()}
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        assert tasks.TENANT.get() == "of the test"
    finally:
        tasks.TENANT.reset(token)
        signal.setitimer(signal.ITIMER_REAL, *had)
    assert 0 < left <= 1000
    assert (os.getcwd(), os.umask(before[1])) == (before[0], 0o022)
    assert runs["kit.context"].response == ["none", settings.LANGUAGE_CODE]
    assert logging_now() == logged


def test_a_swallowed_database_error_makes_drain_raise_in_a_transaction(atp):
    """Django or PostgreSQL refuses further queries in the transaction of the test."""
    tasks.caught.enqueue(name="a")
    with pytest.raises(NotPossible, match=r"transaction\.atomic\(\), or use TransactionTestCase"):
        atp.drain()
    assert atp.enqueued(tasks.caught)[0].reason == "ERROR"


@pytest.mark.django_db(transaction=True)
def test_a_swallowed_database_error_is_harmless_without_a_transaction(atp):
    tasks.caught.enqueue(name="a")
    [run] = atp.drain()
    assert run.response == "caught"

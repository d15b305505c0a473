"""Callbacks to a receiver that is a real server of its own."""

import json
import os
import random
import signal

import pytest

from atp.models import Instance, LogRecord
from atp.states import Event, State
from tests import receiver as receivers
from tests.helpers import DEADLINE, wait_for


@pytest.fixture
def receiver(settings):
    """What a receiver on this host has got; the project allows it."""
    with receivers.receiver("") as found:
        settings.ATP = {**settings.ATP, "OGC_HOSTS": [found.url.removesuffix("/hooks")]}
        yield found


@pytest.fixture
def daemon(receiver, atpd, settings):
    return atpd(settings={"OGC_HOSTS": settings.ATP["OGC_HOSTS"]})


def subscriber(receiver, *kinds):
    return {f"{kind}Uri": f"{receiver.url}/{kind}" for kind in kinds}


def told(receiver):
    """Return what it was told so far: the kinds and the documents."""
    return [(each.path.rpartition("/")[2], json.loads(each.body)) for each in receiver.received]


def test_end_is_told_to_the_address_of_the_client(daemon, receiver, ogc):
    for count, inputs in enumerate(({"text": "hi"}, {"fail": True}), start=1):
        body = {"inputs": inputs, "subscriber": subscriber(receiver, "success", "failed")}
        job = ogc.execute("ogc.echo", body, Prefer="respond-async").json()["jobID"]
        wait_for(lambda count=count: len(told(receiver)) == count)
    first, (kind, document) = told(receiver)
    assert first == ("success", {"result": "hi"})
    assert (kind, document["jobID"], document["status"]) == ("failed", job, "failed")
    assert document["links"][0]["href"] == f"http://testserver/ogc/jobs/{job}"


def test_progress_is_told_until_the_job_has_ended(daemon, receiver, ogc):
    asked = subscriber(receiver, "inProgress", "failed")
    body = {"inputs": {"pause": 30}, "subscriber": asked}
    job = ogc.execute("ogc.echo", body, Prefer="respond-async").headers["Location"]
    kind, document = wait_for(lambda: told(receiver))[0]
    assert (kind, document["status"]) == ("inProgress", "running")
    ogc.delete(job)
    kind, document = wait_for(lambda: told(receiver)[1:])[-1]
    assert (kind, document["status"]) == ("failed", "dismissed")
    deferred = LogRecord.objects.filter(kind=Event.DEFER, instance__type__identifier="atp.progress")
    wait_for(deferred.exists)
    assert not daemon.facts("retried"), "it is planned that it looks again: no warning"


def test_subscriber_that_cannot_be_called_back_is_refused(receiver, ogc, types):
    wrong = {"successUri": "https://127.0.0.1/x", "failedUri": "ftp://x", "inProgressUri": None}
    answer = ogc.execute("ogc.echo", {"inputs": {}, "subscriber": wrong})
    assert answer.status_code == 400
    assert [each["field"] for each in answer.json()["errors"]] == [
        "subscriber.successUri",
        "subscriber.failedUri",
    ]
    assert not Instance.objects.exists()


@pytest.mark.long
def test_receiver_hears_of_1000_ends_under_kills(receiver, atpd, ogc, settings):
    own = {"OGC_HOSTS": settings.ATP["OGC_HOSTS"]}
    daemons = [atpd(processes=4, settings=own), atpd(processes=4, settings=own)]
    for number in range(1000):
        body = {"inputs": {"text": str(number)}, "subscriber": subscriber(receiver, "success")}
        assert ogc.execute("ogc.echo", body, Prefer="respond-async").status_code == 201
    chosen = random.Random(7)
    for kill in range(5):
        wait_for(lambda kill=kill: len(receiver.received) > 150 * (kill + 1), 3 * DEADLINE)
        victim = daemons[kill % 2]
        os.kill(chosen.choice([victim.dispatcher(), *victim.workers()]), signal.SIGKILL)
    left = Instance.objects.exclude(state=State.FINISHED)
    wait_for(lambda: not left.exists(), 5 * DEADLINE)
    results = [document["result"] for _, document in told(receiver)]
    assert set(results) == {str(number) for number in range(1000)}
    # A worker that was killed may have told it, and not have said so.
    assert len(results) <= 1000 + 5 * 4

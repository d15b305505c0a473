"""Callbacks to a receiver that is a real server of its own."""

import json
import os
import random
import signal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import SimpleNamespace

import pytest

from atp.models import Instance, LogRecord
from atp.states import Event, State
from tests.helpers import DEADLINE, wait_for

END = {"successUri": "/success", "failedUri": "/failed"}


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, json.loads(body)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def receiver(settings):
    """What a receiver on this host has got; the project allows it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.received = []
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    settings.ATP = {**settings.ATP, "OGC_HOSTS": [url]}
    yield SimpleNamespace(url=url, received=server.received)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def daemon(receiver, atpd):
    return atpd(settings={"OGC_HOSTS": [receiver.url]})


def subscriber(receiver, **paths):
    return {name: receiver.url + path for name, path in (paths or END).items()}


def test_end_is_told_to_the_address_of_the_client(daemon, receiver, ogc):
    for name, inputs in (("success", {"text": "hi"}), ("failed", {"fail": True})):
        body = {"inputs": inputs, "subscriber": subscriber(receiver)}
        job = ogc.execute("ogc.echo", body, Prefer="respond-async").json()["jobID"]
        [(path, document)] = wait_for(lambda: list(receiver.received))
        receiver.received.clear()
        assert path == f"/{name}"
        if name == "success":
            assert document == {"result": "hi"}
        else:
            assert (document["jobID"], document["status"]) == (job, "failed")
            assert document["links"][0]["href"] == f"http://testserver/ogc/jobs/{job}"


def test_progress_is_told_until_the_job_has_ended(daemon, receiver, ogc):
    body = {
        "inputs": {"pause": 30},
        "subscriber": subscriber(receiver, inProgressUri="/progress", failedUri="/failed"),
    }
    job = ogc.execute("ogc.echo", body, Prefer="respond-async").headers["Location"]
    path, document = wait_for(lambda: list(receiver.received))[0]
    assert (path, document["status"]) == ("/progress", "running")
    ogc.delete(job)
    path, document = wait_for(lambda: receiver.received[-1:] and receiver.received[1:])[-1]
    assert (path, document["status"]) == ("/failed", "dismissed")
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


def test_service_that_allows_no_host_says_so(ogc, types):
    answer = ogc.execute("ogc.echo", {"inputs": {}, "subscriber": {"successUri": "https://x.org"}})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "subscriber")
    assert not Instance.objects.exists()


@pytest.mark.long
def test_receiver_hears_of_1000_ends_under_kills(receiver, atpd, ogc):
    own = {"OGC_HOSTS": [receiver.url]}
    daemons = [atpd(processes=4, settings=own), atpd(processes=4, settings=own)]
    for number in range(1000):
        body = {"inputs": {"text": str(number)}, "subscriber": subscriber(receiver)}
        assert ogc.execute("ogc.echo", body, Prefer="respond-async").status_code == 201
    chosen = random.Random(7)
    for kill in range(5):
        wait_for(lambda kill=kill: len(receiver.received) > 150 * (kill + 1), 3 * DEADLINE)
        victim = daemons[kill % 2]
        os.kill(chosen.choice([victim.dispatcher(), *victim.workers()]), signal.SIGKILL)
    left = Instance.objects.exclude(state=State.FINISHED)
    wait_for(lambda: not left.exists(), 5 * DEADLINE)
    told = [document["result"] for _, document in receiver.received]
    assert set(told) == {str(number) for number in range(1000)}
    # A worker that was killed may have told it, and not have said so.
    assert len(told) <= 1000 + 5 * 4

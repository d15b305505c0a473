"""Inputs by reference, which a worker fetches from a server that the project allows."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from atp.models import Instance
from atp.states import Reason, State

FILES = {
    "box.json": "[7, 46, 8, 47.5]",
    "day.json": '"2030-02-01"',
    "text.txt": "from elsewhere",
}


@pytest.fixture
def site(settings, tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    settings.ATP = {**settings.ATP, "OGC_HOSTS": [url, "localhost"]}
    yield url
    server.shutdown()
    thread.join()
    server.server_close()


def run(ogc, atp, process, inputs):
    answer = ogc.execute(process, {"inputs": inputs}, Prefer="respond-async")
    assert answer.status_code == 201, answer.json()
    atp.drain(raises=False)
    return Instance.objects.select_related("type").get()


def test_values_are_fetched_by_the_worker(site, ogc, types, atp):
    inputs = {"bbox": {"href": f"{site}/box.json"}, "day": {"href": f"{site}/day.json"}}
    instance = run(ogc, atp, "ogc.relief", inputs)
    assert instance.state == State.FINISHED, instance.log.last().message
    results = ogc.get(f"jobs/{instance.uuid}/results").json()
    assert (results["height"], results["day"]) == (1.5, "2030-02-01")


def test_text_is_text(site, ogc, types, atp):
    instance = run(ogc, atp, "ogc.echo", {"text": {"href": f"{site}/text.txt"}})
    assert instance.response.value == "from elsewhere"


@pytest.mark.parametrize(
    ("process", "inputs", "said"),
    [
        ("ogc.relief", {"bbox": {"href": "/text.txt"}}, "bbox"),
        ("ogc.echo", {"text": {"href": "/missing"}}, "404"),
        ("ogc.echo", {"text": {"href": "https://localhost/x"}}, "private address"),
        ("ogc.echo", {"pause": {"href": "/text.txt", "type": "application/json"}}, "pause"),
    ],
)
def test_what_does_not_fit_ends_the_job(site, ogc, types, atp, process, inputs, said):
    [(name, reference)] = inputs.items()
    address = reference["href"]
    given = {name: reference | {"href": address if "//" in address else site + address}}
    instance = run(ogc, atp, process, given)
    assert (instance.state, instance.reason) == (State.FAILED, Reason.FATAL)
    assert said in ogc.get(f"jobs/{instance.uuid}").json()["message"]


def test_address_that_is_not_allowed_is_refused_at_once(site, ogc, types):
    answer = ogc.execute("ogc.echo", {"inputs": {"text": {"href": "https://a.example.org/x"}}})
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["field"] == "inputs.text"
    assert not Instance.objects.exists()

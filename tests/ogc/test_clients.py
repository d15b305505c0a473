"""Clients of other makers, unchanged, against a server and a daemon of their own processes."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.conformance.fetching import ROOT, interpreter, make_environment

RELIEF = {"height": 1.5, "day": "2030-02-01", "tiles": [8]}
# What a client gets that names the outputs that it wants. One of them cannot read plain text.
CHOSEN = {"height": 1.5}
PROCESSES = ["ogc.echo", "ogc.files", "ogc.relief", "ogc.tidy"]
# Installing the clients takes a minute.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def python():
    """The interpreter of an environment with the clients, which need Python 3.12."""
    try:
        interpreter()
    except SystemExit:
        pytest.skip("there is no Python 3.12 or later on this machine")
    lines = (ROOT / ".ci" / "clients.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    folder = ROOT / ".conformance" / "clients"
    return make_environment(folder, ["--no-deps", "--no-compile", *pins])


@pytest.fixture
def call(python, live_server, atpd, settings, media):
    """Return what a client has understood of the service, whose jobs anybody may see."""
    settings.ATP = {**settings.ATP, "OGC_LANE": "tests.ogc.test_jobs.lane_of_all"}
    atpd()

    def call(client):
        script = Path(__file__).with_name("foreign.py")
        command = [str(python), str(script), client, f"{live_server.url}/ogc"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    return call


@pytest.mark.parametrize(
    ("client", "values"),
    [
        ("owslib", RELIEF),
        ("ogc_api_processes_client", CHOSEN),
        ("cuiman", CHOSEN),
        ("ecmwf_datastores_client", RELIEF),
    ],
)
def test_client_lists_describes_runs_polls_and_dismisses(call, client, values):
    found = call(client)
    # The demo has some, too.
    assert [each for each in found["processes"] if each.startswith("ogc.")] == PROCESSES
    assert found["inputs"] == ["bbox", "day", "zoom"]
    assert found["status"] == "successful"
    relief = found["results"].pop("relief")
    assert relief["href"].endswith("/results/relief")
    assert relief["type"] == "image/png"
    assert found["results"] == values
    assert found.get("jobs", True)
    assert found["dismissed"] == "dismissed"


def test_openapi_document_fits_the_conformance_classes(call):
    assert call("ogcapi_registry") == {"valid": True, "errors": []}

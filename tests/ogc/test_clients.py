"""Foreign clients, unchanged, against a server and a daemon of their own processes."""

import pytest
import requests
from owslib.ogcapi.processes import Processes
from owslib.util import Authentication

from tests.helpers import wait_for

NAME, PASSWORD = "ann", "of the tests only"
RESULTS = "http://www.opengis.net/def/rel/ogc/1.0/results"


@pytest.fixture
def site(live_server, atpd, user, media):
    atpd()
    return f"{live_server.url}/ogc/"


@pytest.mark.usefixtures("site")
def test_owslib_lists_describes_runs_and_dismisses(site):
    login = Authentication(username=NAME, password=PASSWORD)
    service = Processes(site, auth=login)
    assert [each["id"] for each in service.processes()] == ["ogc.echo", "ogc.relief"]
    assert service.process("ogc.relief")["inputs"]["bbox"]["minOccurs"] == 1
    assert service.execute("ogc.echo", {"text": "waited for"}) == {"result": "waited for"}
    job = service.execute("ogc.relief", {"bbox": [7, 46, 8, 47]}, async_=True)
    assert job["processID"] == "ogc.relief"
    [monitor] = [each["href"] for each in job["links"] if each["rel"] == "monitor"]

    def ended():
        status = requests.get(monitor, auth=(NAME, PASSWORD), timeout=30).json()
        return status if status["status"] == "successful" else None

    [results] = [each["href"] for each in wait_for(ended)["links"] if each["rel"] == RESULTS]
    found = requests.get(results, auth=(NAME, PASSWORD), timeout=30).json()
    assert (found["height"], found["tiles"]) == (1, [8])
    picture = requests.get(found["relief"]["href"], auth=(NAME, PASSWORD), timeout=30)
    assert (picture.headers["Content-Type"], picture.content) == ("image/png", b"\x89PNG")
    gone = requests.delete(monitor, auth=(NAME, PASSWORD), timeout=30)
    assert gone.json()["status"] == "dismissed"
    assert requests.get(monitor, auth=(NAME, PASSWORD), timeout=30).status_code == 404

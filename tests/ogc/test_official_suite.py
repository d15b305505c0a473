"""What the official suite demands beyond the text of the standard, by the names of its tests.

The suite is ets-ogcapi-processes10. It needs Java and Maven, so it is not run here. It takes a
process that returns a text, and that waits for as many seconds as its input ``pause`` says.
"""

import pytest

from tests.helpers import wait_for

REL = "http://www.opengis.net/def/rel/ogc/1.0/"
TEXT = "teststring"


@pytest.fixture
def job(ogc, types):
    """The answer to an asynchronous execution of the process that the suite asks for."""
    body = {"inputs": {"text": TEXT}, "outputs": {"result": {}}, "response": "raw"}
    return ogc.execute("ogc.echo", body, Prefer="respond-async")


class TestJobs:
    @pytest.mark.parametrize("inputs", [{"pause": "wrong"}, {"unknown": 1}, {"text": 5}])
    def test_job_creation_input_validation(self, ogc, types, inputs):
        refused = ogc.execute("ogc.echo", {"inputs": inputs}, Prefer="respond-async")
        assert refused.status_code in (400, 500)
        assert refused.headers["Content-Type"] == "application/json"

    def test_job_results_sync(self, ogc, atpd):
        atpd()
        # The suite splits a Link header of such an answer at the wrong places.
        answer = ogc.execute("ogc.echo", {"inputs": {"text": TEXT}}, Prefer="respond-sync")
        assert (answer.status_code, answer.json()) == (200, {"result": TEXT})
        assert "Link" not in answer.headers

    def test_job_creation_success_async(self, job, ogc):
        assert job.status_code == 201
        assert job.headers["Location"].startswith("http://")
        assert job.headers["Link"] == f"<{job.headers['Location']}>; rel=monitor"
        assert ogc.get(job.headers["Location"]).json()["status"] == "accepted"

    def test_job_results_async_raw_value_one(self, job, ogc, atp):
        """Follow nothing but the links of the status."""

        def links():
            found = ogc.get(address).json()["links"]
            return {each["rel"]: each["href"] for each in found}

        address = job.headers["Location"]
        address = links()["monitor"]
        atp.drain()
        assert TEXT in ogc.get(links()[f"{REL}results"]).content.decode()

    def test_job_results_exception_results_not_ready(self, job, ogc):
        answer = ogc.get(f"{job.headers['Location']}/results")
        assert answer.status_code == 404
        assert answer.json()["type"] == (
            "http://www.opengis.net/def/exceptions/ogcapi-processes-1/1.0/result-not-ready"
        )

    def test_job_creation_auto_execution_mode(self, ogc, atpd):
        """The process pauses, and the suite looks four times, five seconds apart."""
        atpd()
        body = {"inputs": {"text": TEXT, "pause": 1}}
        job = ogc.execute("ogc.echo", body, Prefer="respond-async").headers["Location"]
        wait_for(lambda: ogc.get(job).json()["status"] == "successful")

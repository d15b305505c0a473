"""Executions, jobs, their results, and who sees them."""

from datetime import timedelta
from urllib.parse import unquote

import pytest
from django.utils import timezone

from atp import checks, queue
from atp.models import Instance
from atp.ogc import documents
from atp.states import Reason, State

from .conftest import BOX, Ogc

HOUR = timedelta(hours=1)
RESULTS = "http://www.opengis.net/def/rel/ogc/1.0/results"


def test_execution_is_a_job_in_the_lane_of_the_user(ogc, types):
    answer = ogc.execute("ogc.relief", {"inputs": BOX})
    status = answer.json()
    assert answer.status_code == 201
    assert answer.headers["Location"] == f"http://testserver/ogc/jobs/{status['jobID']}"
    assert answer.headers["Link"] == f"<{answer.headers['Location']}>; rel=monitor"
    assert (status["type"], status["status"], status["progress"]) == ("process", "accepted", 0)
    assert "No daemon" in status["message"]
    instance = queue.get(status["jobID"])
    assert (instance.collection, instance.created_by) == ("user:ann", "user ann via OGC")


def test_finished_job_has_values_and_files(ogc, job, atp):
    [run] = atp.drain()
    assert run.state == State.FINISHED, run.log
    status = ogc.get(job).json()
    assert (status["status"], status["progress"]) == ("successful", 100)
    links = {each["rel"]: each["href"] for each in status["links"]}
    assert links["monitor"] == job
    results = links[RESULTS]
    found = ogc.get(results).json()
    assert (found["height"], found["day"], found["tiles"]) == (1.5, "2030-02-01", [8])
    assert found["relief"] == {"href": f"{results}/relief", "type": "image/png"}
    picture = ogc.get(found["relief"]["href"])
    assert b"".join(picture) == b"\x89PNG"
    assert ogc.get(f"{results}/height").json() == 1.5
    some = ogc.get(f"{results}?outputs=day,height").json()
    assert some == {"day": "2030-02-01", "height": 1.5}
    missing = ogc.get(f"{results}/heigth")
    assert missing.status_code == 404
    assert "Did you mean 'height'?" in missing.json()["detail"]


def test_job_that_ends_while_its_status_is_read_has_ended(job):
    read_before = queue.get(job.rpartition("/")[2])
    queue.cancel(read_before.uuid)
    assert documents.causes_of([read_before]) == {}
    assert documents.status_of(read_before) == "dismissed"


def test_results_that_are_not_there_are_told(ogc, job, atp, types):
    early = ogc.get(f"{job}/results")
    assert early.status_code == 404
    assert early.json()["type"].endswith("/1.0/result-not-ready")
    failing = ogc.execute("ogc.echo", {"inputs": {"fail": True}}, Prefer="respond-async")
    atp.drain(raises=False)
    status = ogc.get(failing.headers["Location"]).json()
    assert status["status"] == "failed"
    assert status["exception"]["type"] == "urn:atp:problem:error"
    assert "it was told to fail" in status["message"]
    assert "second line" not in status["message"]
    failed = ogc.get(f"{failing.headers['Location']}/results")
    assert (failed.status_code, failed.json()["detail"]) == (500, status["message"])


def test_dismissed_job_stays_and_an_ended_one_is_removed(ogc, job):
    assert ogc.delete(job).json()["status"] == "dismissed"
    assert ogc.get(job).json()["status"] == "dismissed"
    assert ogc.get(f"{job}/results").status_code == 410
    removed = ogc.delete(job).json()
    assert removed["status"] == "dismissed"
    assert "removed" in removed["message"]
    gone = ogc.get(job)
    assert (gone.status_code, gone.json()["type"].rpartition("/")[2]) == (404, "no-such-job")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            {"inputs": {"zoom": "x", "colour": "red"}},
            {"inputs.bbox": "", "inputs.colour": "", "inputs.zoom": ""},
        ),
        ({"inputs": {"bbox": [1, 2, 3]}}, {"inputs.bbox": ""}),
        ({"inputs": {"bbox": [1, 2, 3, "x"]}}, {"inputs.bbox[3]": ""}),
        ({"inputs": BOX | {"day": "yesterday"}}, {"inputs.day": ""}),
        ({"inputs": {"bbox": {"href": "https://example.org/x"}}}, {"inputs.bbox": ""}),
        ({"inputs": []}, {"inputs": ""}),
        ({"outputs": {"hight": {}}}, {"outputs.hight": "Did you mean 'height'?"}),
        (
            {"outputs": {"relief": {"transmissionMode": "value"}}},
            {"outputs.relief.transmissionMode": ""},
        ),
        ({"outputs": ["height"]}, {"outputs": ""}),
        ({"outputs": "height"}, {"outputs": ""}),
        ({"outputs": 5}, {"outputs": ""}),
        # This service allows no host.
        ({"subscriber": {"successUri": "https://example.org"}}, {"subscriber": ""}),
    ],
)
def test_every_problem_of_an_execution_is_told_before_anything_is_written(ogc, types, body, told):
    answer = ogc.execute("ogc.relief", {"inputs": BOX} | body)
    assert answer.status_code == 400
    errors = {each["field"]: each["detail"] for each in answer.json()["errors"]}
    assert set(errors) == set(told)
    assert all(part in errors[field] for field, part in told.items())
    assert not Instance.objects.exists()


@pytest.mark.parametrize(
    "box", [{"value": BOX["bbox"]}, {"bbox": BOX["bbox"], "crs": "http://…/CRS84"}, BOX["bbox"]]
)
def test_inputs_may_be_qualified(ogc, types, box, atp):
    ogc.execute("ogc.relief", {"inputs": {"bbox": box, "day": {"value": "2030-02-01"}}})
    [run] = atp.drain()
    assert run.state == State.FINISHED, run.log


def test_results_are_what_the_execution_asked_for(ogc, types, atp):
    def results(**body):
        job = ogc.execute("ogc.relief", {"inputs": BOX, **body}).headers["Location"]
        atp.drain()
        return ogc.get(f"{job}/results")

    found = results(outputs={"height": {}, "day": {"transmissionMode": "reference"}}).json()
    assert (list(found), found["height"]) == (["height", "day"], 1.5)
    assert found["day"]["href"].endswith("/results/day")
    raw = results(outputs={"day": {}}, response="raw")
    assert raw.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert raw.content == b"2030-02-01"


def test_files_have_names_of_their_own(ogc, types, atp):
    job = ogc.execute("ogc.files", {"inputs": {}}).headers["Location"]
    [run] = atp.drain()
    assert run.state == State.FINISHED, run.log
    found = ogc.get(f"{job}/results").json()
    links = {name: each["href"] for name, each in found.items() if isinstance(each, dict)}
    contents = {name: b"".join(ogc.get(href)) for name, href in links.items()}
    assert contents == {
        "map": b"png",
        "map.json": b"{}",
        "deep/a b.txt": b"first",
        "deep/a b.txt-2": b"second",
        "height-2": b"a field",
    }
    assert found["height"] == 1.5


def test_full_queue_asks_the_client_to_come_back(ogc, types):
    queue.limit("ogc.relief", max_waiting=2)
    answers = [ogc.execute("ogc.relief", {"inputs": BOX}) for _ in range(9)]
    assert {each.status_code for each in answers} == {201, 429}
    assert int(answers[-1].headers["Retry-After"]) >= 1


def test_job_of_another_does_not_exist(ogc, other, operator, job):
    assert [client.get(job).status_code for client in (ogc, other, operator)] == [200, 404, 200]
    assert other.delete(job).status_code == 404
    assert other.get("jobs").json()["jobs"] == []
    assert len(operator.get("jobs").json()["jobs"]) == 1
    assert operator.delete(job).status_code == 200


def test_nobody_runs_and_sees_nothing(job):
    anybody = Ogc()
    answers = anybody.execute("ogc.relief", {"inputs": BOX}), anybody.get(job), anybody.get("jobs")
    assert {each.status_code for each in answers} <= {401, 403}


def lane_of_all(request):
    return "public"


def test_project_gives_the_lanes(types, settings):
    settings.ATP = {**settings.ATP, "OGC_LANE": f"{__name__}.lane_of_all"}
    assert checks.check_lanes(None) == []
    anybody = Ogc()
    job = anybody.execute("ogc.relief", {"inputs": BOX}).headers["Location"]
    assert anybody.get(job).status_code == 200
    assert Instance.objects.get().collection == "public"


@pytest.mark.parametrize("path", ["lane", "no.such.module", "tests.ogc.test_jobs.BOX"])
def test_wrong_rule_of_lanes_is_named_by_a_check(settings, path):
    settings.ATP = {**settings.ATP, "OGC_LANE": path}
    [found] = checks.check_lanes(None)
    assert (found.id, f"ATP['OGC_LANE']: {path!r}" in found.msg) == ("atp.E023", True)


@pytest.mark.parametrize("job", ["x", "12345678-1234-1234-1234-123456789012"])
def test_unknown_job_is_told(ogc, types, job):
    answer = ogc.get(f"jobs/{job}")
    assert answer.status_code == 404
    assert answer.json()["type"].endswith("/1.0/no-such-job")


def test_private_instance_is_no_job(operator, types):
    instance = queue.declared("ogc.private").enqueue()
    assert operator.get(f"jobs/{instance.uuid}").status_code == 404
    assert operator.get("jobs").json()["jobs"] == []


class TestList:
    @pytest.fixture
    def jobs(self, ogc, types, atp):
        """The uuids of jobs, by their status."""
        made = {}
        for status in ("failed", "successful", "dismissed", "accepted"):
            inputs = {"inputs": {"fail": status == "failed", "text": status}}
            answer = ogc.execute("ogc.echo", inputs, Prefer="respond-async")
            made[status] = answer.json()["jobID"]
            if status in ("failed", "successful"):
                atp.drain(raises=False)
            elif status == "dismissed":
                ogc.delete(f"jobs/{made[status]}")
        return made

    def test_it_has_the_newest_first_by_pages(self, ogc, jobs):
        pages = ogc.pages("jobs?limit=3")
        assert [len(page["jobs"]) for page in pages] == [3, 1]
        found = [each["jobID"] for page in pages for each in page["jobs"]]
        assert found == list(jobs.values())[::-1]

    def test_it_is_filtered(self, ogc, jobs):
        every, ended = set(jobs.values()), {jobs["failed"], jobs["successful"]}
        past, soon = (f"{timezone.now() + n * HOUR:%Y-%m-%dT%H:%M:%SZ}" for n in (-1, 1))
        for query, wanted in (
            *((f"status={status}", {job}) for status, job in jobs.items()),
            ("status=running", set()),
            ("status=failed,successful", ended),
            ("status=failed&status=successful", ended),
            ("processID=ogc.echo,ogc.relief&type=process", every),
            ("processID=ogc.relief", set()),
            ("type=other", set()),
            (f"datetime={past}/{soon}", every),
            (f"datetime=../{past}", set()),
            ("minDuration=1000", set()),
            ("maxDuration=1000", ended),
        ):
            found = ogc.get(f"jobs?{query}").json()["jobs"]
            assert {each["jobID"] for each in found} == wanted, query

    @pytest.mark.parametrize(
        "query",
        [
            "limit=0",
            "limit=many",
            "status=done",
            "stauts=failed",
            "datetime=2030-01-02T00:00:00Z/2030-01-01T00:00:00Z",
            "datetime=tomorrow",
            "minDuration=-1",
            "limit=%00",
            "status=%00",
            "datetime=%00",
            "%00=x",
        ],
    )
    def test_parameter_that_is_not_possible_is_named(self, ogc, types, query):
        answer = ogc.get(f"jobs?{query}")
        assert answer.status_code == 400
        assert answer.json()["errors"][0]["field"] == unquote(query).partition("=")[0]


@pytest.mark.parametrize(
    "path",
    [
        f"jobs?limit={'9' * 5000}",
        f"processes?limit={'9' * 5000}",
        "processes?after=%00",
        "jobs?processID=%00,ogc.echo",
        f"jobs?minDuration={'9' * 5000}",
        f"jobs?maxDuration={'9' * 5000}",
        "jobs?datetime=0001-01-01T00:00:00Z",
        "jobs?datetime=0001-01-01T00:00:00%2B14:00/..",
        "jobs?datetime=9999-12-31T23:59:59-14:00/..",
        "jobs?datetime=../9999-12-31T23:59:59-14:00",
        "jobs?datetime=../0001-01-01T00:00:00%2B14:00",
        "jobs?datetime=0001-01-01T00:00:00Z/9999-12-31T23:59:59Z",
    ],
)
def test_extreme_parameter_is_possible(ogc, operator, job, path):
    assert [client.get(path).status_code for client in (ogc, operator)] == [200, 200]


@pytest.mark.parametrize(
    "path",
    [
        "jobs/%00",
        "processes/%00",
        "{job}/results/%00",
        "{job}/results?outputs=%00",
        "jobs?after=%00",
    ],
)
def test_names_with_odd_characters_are_refused(ogc, job, atp, path):
    atp.drain()
    assert ogc.get(path.format(job=job)).status_code in (400, 404)


@pytest.mark.parametrize("wish", [f"wait={'9' * 5000}", "wait=\x00", "wait=٣", "wait", "=", ";;"])
def test_odd_preference_starts_a_job(ogc, types, wish):
    ogc.client.defaults["wsgi.multithread"] = False  # such a server does not wait
    assert ogc.execute("ogc.relief", {"inputs": BOX}, Prefer=wish).status_code == 201


def test_odd_body_is_taken_or_refused(ogc, types):
    odd = "a\x00b"
    bodies = [{"inputs": {"text": odd}}, {"inputs": {odd: 1}}, {"inputs": {}, "outputs": {odd: {}}}]
    bodies += [{"inputs": {"pause": "wrong"}}, ["a"]]
    answers = [ogc.execute("ogc.echo", body, Prefer="respond-async") for body in bodies]
    assert [each.status_code for each in answers] == [201, 400, 400, 400, 400]


def test_page_of_an_operator_may_be_short_and_have_a_next(ogc, operator, types, monkeypatch):
    """A search through a long queue stops, and the next page goes on with it."""
    first = ogc.execute("ogc.relief", {"inputs": BOX}).json()["jobID"]
    queue.declared("ogc.private").enqueue_many([{}] * 5)
    last = ogc.execute("ogc.relief", {"inputs": BOX}).json()["jobID"]
    monkeypatch.setattr("atp.reports.paging._FIRST_PORTION", 2)
    monkeypatch.setattr("atp.reports.paging._LONGEST", 0)
    found = [[each["jobID"] for each in page["jobs"]] for page in operator.pages("jobs")]
    assert found[0] == [last]
    assert [] in found
    assert [job for jobs in found for job in jobs] == [last, first]


def test_cancelled_by_an_operator_counts_as_dismissed(ogc, job):
    queue.cancel(queue.get(job.rpartition("/")[2]), by="the operator")
    instance = Instance.objects.get()
    assert instance.reason == Reason.CANCELLED
    status = ogc.get(job).json()
    assert status["status"] == "dismissed"
    assert "the operator" in status["message"]

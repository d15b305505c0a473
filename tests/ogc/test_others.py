"""What a client reads never names, and never counts, the work of others."""

import json
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User

from atp import Graph, queue
from atp.models import Daemon, Instance, LogRecord
from atp.ogc import documents
from atp.reports.explaining.explain import SHORT
from atp.states import Event, Reason, State
from atp.store import get_store

from .conftest import BOX, Ogc


def texts(client, job):
    """Return what the status of a job, the list of jobs and the results say, as one text."""
    answers = [client.get(path) for path in (job, "jobs", f"{job}/results")]
    return "\n".join(json.dumps(each.json()) for each in answers)


def instance_of(job):
    return queue.get(job.rpartition("/")[2])


class TestCauses:
    @pytest.fixture
    def busy(self, world, types):
        """A private Instance that keeps the only worker busy."""
        host = world.host("ogc.relief", "ogc.private")
        private = queue.declared("ogc.private").enqueue()
        since = (get_store().now() - timedelta(seconds=60)).isoformat()
        worker = {"worker": 0, "pid": 1, "instance": str(private.uuid), "type": "ogc.private"}
        rows = Daemon.objects.filter(uuid=host.uuid)
        rows.update(workers=[worker | {"since": since}], seen=get_store().now())
        return private

    def test_client_reads_that_workers_are_busy_but_not_with_what(self, busy, ogc, operator, job):
        assert ogc.get(job).json()["message"] == "All workers that could run it are busy."
        for secret in ("ogc.private", str(busy.uuid)):
            assert secret not in texts(ogc, job)
            assert secret in texts(operator, job)

    def test_operator_of_some_types_reads_no_more_than_a_client(self, busy, job, settings):
        settings.ATP = {**settings.ATP, "AUTHORIZE": f"{__name__}.of_relief"}
        user = User.objects.create_user("carla")
        user.user_permissions.set(Permission.objects.filter(codename="view_instance"))
        assert "ogc.private" not in texts(Ogc(user), job)

    def test_client_reads_no_reason_of_a_gate_and_no_count_of_a_limit(self, ogc, job):
        queue.hold("ogc.relief", by="carla", reason="the flood of bob")
        said = texts(ogc, job)
        assert "Its start is on hold." in said
        assert "bob" not in said
        assert "carla" not in said

    def test_client_reads_no_name_of_a_node(self, ogc, types):
        with Graph("merge of bob") as graph:
            first = graph.add(queue.declared("ogc.private"), name="secret-node")
            relief = queue.declared("ogc.relief").using(collection="user:ann")
            graph.add(relief, bbox=BOX["bbox"], after=first)
        merge = Instance.objects.get(type__identifier="ogc.relief")
        job = f"/ogc/jobs/{merge.uuid}"
        assert "It waits for other work to end." in texts(ogc, job)
        assert "secret" not in texts(ogc, job)
        queue.cancel(Instance.objects.get(type__identifier="ogc.private"))
        assert instance_of(job).reason == Reason.UPSTREAM
        assert "Other work that it waited for has failed." in texts(ogc, job)
        assert "secret" not in texts(ogc, job)

    def test_every_cause_has_a_sentence_for_clients(self):
        own, others = documents._CAUSES_OF_JOB, set(documents._OTHER_CAUSES)
        assert own | others == set(SHORT)
        assert not own & others


def of_relief(user, permission):
    return ["ogc.relief"]


def nothing(user, permission):
    return []


def test_client_of_a_full_queue_reads_no_count(ogc, operator, types):
    queue.limit("ogc.relief", max_waiting=2)
    [*_, last] = [ogc.execute("ogc.relief", {"inputs": BOX}) for _ in range(9)]
    assert last.status_code == 429
    assert not any(char.isdigit() for char in last.json()["detail"])
    assert "2" in operator.execute("ogc.relief", {"inputs": BOX}).json()["detail"]


def test_client_reads_its_error_and_not_that_its_callback_was_enqueued(ogc, atp, types):
    job = ogc.execute("ogc.echo", {"inputs": {"fail": True}}, Prefer="respond-async")
    job = job.headers["Location"]
    atp.drain(raises=False)
    row = instance_of(job).log.last()
    row.pk, row.kind, row.message = None, "hook", "on_failed: atp.callback was enqueued"
    row.save(force_insert=True)
    said = texts(ogc, job)
    assert "it was told to fail" in said
    assert "atp.callback" not in said


def test_client_reads_no_name_of_the_daemon_that_lost_its_job(ogc, operator, job):
    rows = Instance.objects.filter(pk=instance_of(job).pk)
    rows.update(state=State.FAILED, reason=Reason.STALE, finished=get_store().now())
    queue_record = LogRecord.objects.filter(instance=rows.get(), kind=Event.ENQUEUE)
    queue_record.update(message="given up; the last attempt: daemon secret-host:1 was lost")
    said = texts(ogc, job)
    assert "It was given up, because its attempts were lost too often." in said
    assert "secret-host" not in said
    assert "secret-host" in texts(operator, job)


def test_operator_sees_his_own_jobs_whatever_the_rule_allows(settings, types, db):
    settings.ATP = {**settings.ATP, "AUTHORIZE": f"{__name__}.nothing"}
    user = User.objects.create_user("carla")
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="atp"))
    carla, bob = Ogc(user), Ogc(User.objects.create_user("bob"))
    answers = [each.execute("ogc.relief", {"inputs": BOX}) for each in (carla, bob)]
    own, other = (each.json()["jobID"] for each in answers)
    assert carla.get(f"jobs/{own}").status_code == 200
    assert carla.get(f"jobs/{other}").status_code == 404
    assert [each["jobID"] for each in carla.get("jobs").json()["jobs"]] == [own]
    assert carla.delete(f"jobs/{own}").json()["status"] == "dismissed"

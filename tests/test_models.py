"""Tests of :mod:`atp.models` and :mod:`atp.rows.querysets`."""

from datetime import date, timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import ProtectedError

from atp import queue
from atp.exceptions import UnknownInstance, WaitInTransaction, WaitTimeout
from atp.models import Inputs, Instance, LogRecord, Response, Task, Type
from atp.states import TERMINAL, Event, Reason, State
from atp.store import get_store
from atp.store.values import Move

from .app.tasks import add, echo
from .helpers import Thread

pytestmark = pytest.mark.django_db


def now():
    return get_store().now()


def instance(**values):
    """Return an Instance that is not saved, as the store would write it."""
    values = {"state": State.ACCEPTED, "created": now()} | values
    return Instance(type=Type.objects.get(identifier="tests.echo"), **values)


def end(instance, reason=Reason.CANCELLED):
    change = Move(event=Event.FAIL, instance=instance.pk, reason=reason)
    assert get_store().record([change]) == []
    instance.refresh_from_db()
    return instance


class TestConstraints:
    """The database itself refuses what no store may write."""

    @pytest.mark.parametrize(
        "values",
        [
            {"state": "SLEEPING"},
            {"state": ""},
            {"reason": Reason.ERROR},
            {"state": State.FAILED, "ended": True},
            {"state": State.FAILED, "ended": True, "reason": "BORED"},
            {"state": State.FINISHED, "ended": True, "reason": Reason.ERROR},
            {"state": State.FINISHED},
            {"state": State.FAILED, "reason": Reason.ERROR},
            {"state": State.RUNNING, "ended": True},
            {"priority": 101},
            {"priority": -101},
            {"attempt": -1},
            {"restarts": -1},
            {"retries": -1},
            {"lost": -1},
        ],
        ids=str,
    )
    def test_a_bad_instance_is_refused(self, values):
        values = dict(values)
        if values.pop("ended", False):
            values["finished"] = now()
        with pytest.raises(IntegrityError), transaction.atomic():
            instance(**values).save()

    @pytest.mark.parametrize("state", State)
    def test_a_good_one_is_not(self, state):
        values = {"finished": now()} if state in TERMINAL else {}
        if state == State.FAILED:
            values["reason"] = Reason.ERROR
        instance(state=state, priority=100, **values).save()

    def test_an_identifier_is_unique_within_its_type(self):
        instance(identifier="a").save()
        instance(identifier=None).save()
        instance(identifier=None).save()
        with pytest.raises(IntegrityError), transaction.atomic():
            instance(identifier="a").save()

    def test_an_instance_has_one_task_row_at_most(self):
        """G1."""
        one = echo.enqueue()
        with pytest.raises(IntegrityError), transaction.atomic():
            Task.objects.create(instance=one, type=one.type, due_at=now())

    def test_a_type_with_instances_cannot_be_deleted(self):
        one = echo.enqueue()
        with pytest.raises(ProtectedError):
            Type.objects.get(identifier="tests.echo").delete()
        assert Instance.objects.filter(pk=one.pk).exists()

    def test_a_type_is_unique(self):
        row = Type.objects.get(identifier="tests.echo")
        row.pk = None
        with pytest.raises(IntegrityError), transaction.atomic():
            row.save(force_insert=True)


class TestIndexes:
    def test_those_of_an_instance_hold_nothing_that_changes_while_it_is_live(self):
        """Except partial ones on terminal states: PostgreSQL can update the row in place."""
        changing = {"state", "attempt", "restarts", "retries", "lost", "progress", "started"}
        changing |= {"reason", "progress_message", "finished"}
        for index in Instance._meta.indexes:
            names = set(index.fields) | {e.name for e in index.expressions if hasattr(e, "name")}
            partial = index.condition is not None and "finished__isnull" in str(index.condition)
            assert partial or not names & changing, index.name

    def test_a_claim_walks_its_index(self):
        lane = Task.objects.due(now()).filter(type=1, collection="")
        if connection.vendor != "postgresql":
            plan = lane.in_claiming_order()[:5].explain()
            assert "atp_task_claim" in plan
            return
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
            plan = lane.in_claiming_order()[:5].explain()
        assert "atp_task_claim" in plan
        assert "Sort" not in plan


class TestWait:
    def test_what_has_ended_is_returned_at_once(self):
        one = end(echo.enqueue())
        assert one.wait() is one

    def test_inside_a_transaction_it_would_never_return(self):
        with transaction.atomic(), pytest.raises(WaitInTransaction):
            echo.enqueue().wait()

    @pytest.mark.django_db(transaction=True)
    def test_it_gives_up_in_the_end(self):
        one = echo.enqueue()
        told = r"still ACCEPTED after 0\.05 s\. No daemon is alive\.$"
        with pytest.raises(WaitTimeout, match=told):
            one.wait(timeout=0.05)
        with pytest.raises(TimeoutError):
            one.wait(timeout=0)

    @pytest.mark.django_db(transaction=True)
    def test_a_daemon_that_is_alive_is_not_blamed(self, host):
        with pytest.raises(WaitTimeout, match=r"still ACCEPTED after 0 s\.$"):
            echo.enqueue().wait(timeout=0)

    @pytest.mark.django_db(transaction=True)
    def test_what_is_gone_has_finished_where_its_type_keeps_nothing(self):
        """G12: what FAILED is kept, so what is gone cannot have."""
        one = echo.enqueue()
        queue.delete(one.uuid, cancel=True)
        with pytest.raises(UnknownInstance):
            one.wait()
        Type.objects.update(retention=timedelta(0))
        one = Instance(pk=one.pk, type=Type.objects.get(pk=one.type_id), state=State.RUNNING)
        assert one.wait().state == State.FINISHED

    @pytest.mark.django_db(transaction=True)
    def test_it_sees_the_end(self):
        one = echo.enqueue()
        waiting = Thread(one.wait, 20)
        end(Instance.objects.get(pk=one.pk))
        ended = waiting.result()
        assert (ended.state, ended.reason) == (State.FAILED, Reason.CANCELLED)


class TestResponse:
    def respond(self, content_type, data):
        return Response(instance=echo.enqueue(), content_type=content_type, data=data)

    @pytest.mark.parametrize(
        ("content_type", "data", "value"),
        [
            ("application/json", b'{"$date":"2026-01-02"}', date(2026, 1, 2)),
            ("application/json; charset=utf-8", b"[1]", [1]),
            ("text/plain", "grüß".encode(), "grüß"),
            ("TEXT/HTML", b"<p>", "<p>"),
            ("image/png", b"\x89PNG", b"\x89PNG"),
            ("", None, None),
        ],
    )
    def test_value(self, content_type, data, value):
        self.respond(content_type, data).save()
        assert Response.objects.get().value == value

    def test_a_stored_file(self, media):
        from django.core.files.base import ContentFile
        from django.core.files.storage import default_storage

        path = default_storage.save("atp/x", ContentFile(b"[1,2]"))
        response = self.respond("application/json", None)
        response.file = path
        assert response.value == [1, 2]
        assert response.stored_paths == [path]

    def test_published_files_are_stored_paths_too(self):
        response = self.respond("", None)
        response.files = [{"path": "a"}, {"path": "b"}]
        assert response.stored_paths == ["a", "b"]
        assert response.body is None


def test_log_is_oldest_first():
    one = end(echo.enqueue())
    assert [record.event for record in one.log] == [Event.ENQUEUE, Event.FAIL]
    assert [r.event for r in one.log.transitions()] == [Event.ENQUEUE, Event.FAIL]


def test_inputs_value():
    assert Inputs.objects.get(instance=add.enqueue(1, 2, 3)).value == {"*": [1, 2, 3]}


@pytest.mark.parametrize("model", [Type, Instance, Inputs, LogRecord, Task])
def test_every_row_has_a_name(model):
    echo.enqueue()
    assert str(model.objects.first())


def test_uuids_of_instances_are_in_the_order_of_enqueueing():
    made = [echo.enqueue() for _ in range(3)]
    assert queue.get(made[0].uuid) == made[0]
    assert all(one.uuid.version == 7 for one in made)

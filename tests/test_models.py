"""Tests of the models: constraints and indexes, waiting for an end, Responses and the log."""

from datetime import date, timedelta

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from atp import queue
from atp.exceptions import UnknownInstance, WaitInTransaction, WaitTimeout
from atp.models import Inputs, Instance, LogRecord, Response, Task, Type
from atp.states import TERMINAL, Event, Reason, State
from atp.store import get_store
from atp.store.values import Move

from .app.tasks import echo
from .helpers import Thread

pytestmark = pytest.mark.django_db


def now():
    return get_store().now()


def instance(**values):
    """Return an unsaved Instance with the values that the store would write."""
    values = {"state": State.ACCEPTED, "created": now()} | values
    return Instance(type=Type.objects.get(identifier="tests.echo"), **values)


def end(instance, reason=Reason.CANCELLED):
    change = Move(event=Event.FAIL, instance=instance.pk, reason=reason)
    assert get_store().records.record([change]) == []
    instance.refresh_from_db()
    return instance


class TestConstraints:
    """The database itself refuses rows that the store must never write."""

    def test_database_refuses_an_invalid_instance(self):
        ended = {"finished": now()}
        for values in (
            *({"state": "SLEEPING"}, {"state": ""}, {"reason": Reason.ERROR}),
            *({"state": State.FAILED} | ended, {"state": State.FINISHED}),
            {"state": State.FAILED, "reason": "BORED"} | ended,
            {"state": State.FINISHED, "reason": Reason.ERROR} | ended,
            {"state": State.FAILED, "reason": Reason.ERROR},
            *({"state": State.RUNNING} | ended, {"priority": 101}, {"priority": -101}),
            *({"attempt": -1}, {"restarts": -1}, {"retries": -1}, {"lost": -1}),
        ):
            with pytest.raises(IntegrityError), transaction.atomic():
                instance(**values).save()
        for state in State:
            values = ended if state in TERMINAL else {}
            reason = Reason.ERROR if state == State.FAILED else ""
            instance(state=state, priority=100, reason=reason, **values).save()

    def test_database_refuses_a_second_identifier_or_task_row(self):
        """G1: an identifier is unique within its Type, and an Instance has at most one Task row."""
        instance(identifier="a").save()
        instance(identifier=None).save()
        instance(identifier=None).save()
        with pytest.raises(IntegrityError), transaction.atomic():
            instance(identifier="a").save()
        one = echo.enqueue()
        with pytest.raises(IntegrityError), transaction.atomic():
            Task.objects.create(instance=one, type=one.type, due_at=now())


@pytest.fixture
def by_index_alone():
    """On PostgreSQL, each plan of the test uses an index if it can."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")


class TestIndexes:
    def test_indexes_of_instance_omit_columns_that_change_while_it_is_live(self):
        """PostgreSQL can update a row in place if no indexed column changes.

        Partial indexes on ended Instances are exempt.
        """
        changing = {"state", "attempt", "restarts", "retries", "lost", "progress", "started"}
        changing |= {"reason", "progress_message", "finished"}
        for index in Instance._meta.indexes:
            names = set(index.fields) | {e.name for e in index.expressions if hasattr(e, "name")}
            partial = index.condition is not None and "finished__isnull" in str(index.condition)
            assert partial or not names & changing, index.name

    def test_claim_query_uses_its_index_without_sorting(self, by_index_alone):
        lane = Task.objects.due(now()).filter(type=1, collection="")
        plan = lane.in_claiming_order()[:5].explain()
        assert "atp_task_claim" in plan
        assert "Sort" not in plan

    def test_the_ends_of_a_span_of_creation_are_found_by_the_index_on_uuid(self, by_index_alone):
        echo.enqueue()
        time, is_sqlite = now(), connection.vendor == "sqlite"
        with CaptureQueriesContext(connection) as asked:
            Instance.objects.created_between(time, time)
        assert len(asked) == 2
        with connection.cursor() as cursor:
            for query in asked.captured_queries:
                cursor.execute(f"EXPLAIN {'QUERY PLAN ' * is_sqlite}{query['sql']}")
                plan = str(cursor.fetchall())
                assert "(uuid" in plan if is_sqlite else "atp_instance_uuid_key" in plan
                assert "Sort" not in plan
                assert "TEMP B-TREE" not in plan


class TestWait:
    @pytest.mark.django_db(transaction=True)
    def test_wait_returns_at_the_end_and_raises_after_its_timeout_or_in_a_transaction(self):
        one = echo.enqueue()
        told = r"still ACCEPTED after 0\.05 s\. No daemon is alive\.$"
        with pytest.raises(WaitTimeout, match=told):
            one.wait(timeout=0.05)
        with pytest.raises(TimeoutError):
            one.wait(timeout=0)
        with transaction.atomic(), pytest.raises(WaitInTransaction):
            one.wait()
        waiting = Thread(one.wait, 20)
        end(Instance.objects.get(pk=one.pk))
        ended = waiting.result()
        assert (ended.state, ended.reason) == (State.FAILED, Reason.CANCELLED)
        assert one.wait() is one

    @pytest.mark.django_db(transaction=True)
    def test_wait_takes_a_deleted_instance_as_finished_if_its_type_has_no_retention(self):
        """G12: a FAILED Instance is kept, so an Instance that was deleted has not FAILED."""
        one = echo.enqueue()
        queue.delete(one.uuid, cancel=True)
        with pytest.raises(UnknownInstance):
            one.wait()
        Type.objects.update(retention=timedelta(0))
        one = Instance(pk=one.pk, type=Type.objects.get(pk=one.type_id), state=State.RUNNING)
        assert one.wait().state == State.FINISHED


def test_value_of_a_response_is_decoded_by_its_content_type(media):
    latin = "Zürich".encode("latin-1")
    for content_type, data, value in (
        ("application/json", b'{"$date":"2026-01-02"}', date(2026, 1, 2)),
        ("application/json; charset=utf-8", b"[1]", [1]),
        ("text/plain", "grüß".encode(), "grüß"),
        ("text/csv; charset=iso-8859-1", latin, "Zürich"),
        ("text/csv", latin, latin),
        ("text/csv; charset=none", latin, latin),
        ("TEXT/HTML", b"<p>", "<p>"),
        ("image/png", b"\x89PNG", b"\x89PNG"),
        ("", None, None),
    ):
        Response(instance=echo.enqueue(), content_type=content_type, data=data).save()
        assert Response.objects.latest("pk").value == value
    path = default_storage.save("atp/x", ContentFile(b"[1,2]"))
    response = Response(content_type="application/json", data=None, file=path)
    assert (response.value, response.stored_paths) == ([1, 2], [path])
    response.file, response.files = "", [{"path": "a"}, {"path": "b"}]
    assert response.stored_paths == ["a", "b"]
    assert response.body is None


def test_log_is_ordered_oldest_first_and_each_model_has_a_text_form():
    one = end(echo.enqueue())
    for records in (one.log, one.log.transitions()):
        assert [record.event for record in records] == [Event.ENQUEUE, Event.FAIL]
    echo.enqueue()
    assert all(str(model.objects.first()) for model in (Type, Instance, Inputs, LogRecord, Task))

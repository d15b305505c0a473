"""An attempt that reads a source: positions, rejected records and full queues (G18)."""

from dataclasses import replace

import pytest
from django.db import OperationalError

from atp import queue
from atp.exceptions import DuplicateIdentifier, Fatal, Interrupted, Retry
from atp.models import Cursor, Inputs, Instance, Tailer
from atp.operations.enqueueing import enqueue_prepared
from atp.operations.registry import registry
from atp.payload import codec
from atp.store import get_store
from atp.tailers.tailer import KEPT, MOST_REJECTED

from .conftest import Numbers


def enqueued(identifier="tests.tailed"):
    """Return the inputs of the Type's Instances in the order of their enqueue."""
    rows = Inputs.objects.filter(instance__type__identifier=identifier).order_by("instance")
    return [codec.decode(codec.Payload(row.format, row.data)) for row in rows]


def data():
    return [inputs["data"] for inputs in enqueued()]


def position():
    return Cursor.objects.get(tailer="tests.tailer").position


def failing(record):
    raise KeyError("cloud")


def test_a_batch_ends_when_its_inputs_are_large(declare, read, monkeypatch):
    """This is independent of how many records the source returns at once."""
    made = declare(Numbers(*[b"a" * 5000] * 5))
    begun = []
    monkeypatch.setattr("atp.tailers.tailer.BATCH_BYTES", 10_000)
    monkeypatch.setattr(
        "atp.tailers.tailer.enqueue_prepared",
        lambda calls: begun.append(len(calls)) or enqueue_prepared(calls),
    )
    assert read(made)["records"] == 5
    assert begun == [2, 2, 1]
    assert position() == "5"


def test_a_record_that_cannot_be_mapped_is_rejected_and_others_continue(declare, read, work):
    """The rejected record keeps its data and its error (G13).

    Only the enqueue detects that the identifier of a call is taken.
    """
    work.using(identifier="e").enqueue(data="first")

    def function(record):
        if record.data == b"b":
            raise KeyError("cloud")
        name = "date" if record.data == b"d" else "data"
        return work.using(identifier=record.text()).call(**{name: record.text()})

    found = read(declare(Numbers(b"a", b"b", b"c", b"d", b"e", b"f"), function))
    assert found == {"records": 6, "enqueued": 3, "rejected": 3, "behind": 0}
    assert (data(), position()) == (["first", "a", "c", "f"], "6")
    raised, misfit, duplicate = enqueued("tests.tailer.rejected")
    assert duplicate["error"].startswith(DuplicateIdentifier.__name__)
    assert raised["error"] == "KeyError: 'cloud'"
    assert raised["record"]["data"] == b"b"
    assert raised["record"]["position"] == "2"
    assert misfit["error"].startswith("InvalidInputs: ")
    row = Tailer.objects.get()
    assert (row.identifier, row.source, row.behind) == ("tests.tailer", "numbers", 0)
    assert (row.records, row.enqueued, row.rejected) == (6, 3, 3)


def test_a_rejected_record_that_is_too_large_is_truncated(declare, read, settings, atp):
    """The record cannot be mapped again; the error says where to find the whole record (G13)."""
    settings.ATP = settings.ATP | {"MAX_INPUTS_SIZE": 2000}
    made = declare(Numbers(b"x" * 5000), failing)
    assert read(made)["rejected"] == 1
    [inputs] = enqueued("tests.tailer.rejected")
    assert inputs["record"] == {
        "shard": "a",
        "position": "1",
        "data": b"x" * KEPT,
        "is_cut": True,
    }
    [run] = atp.drain(made.rejected, raises=False)
    assert (run.state, run.reason) == ("FAILED", "FATAL")
    assert "in shard 'a' at position '1'" in str(run.error)
    # A source that deletes its records must not delete one that is stored nowhere else (G1).
    source = Numbers(b"x" * 5000)
    source.removes = True
    Cursor.objects.all().delete()
    with pytest.raises(Fatal, match="can neither be mapped nor be stored as inputs"):
        read(declare(source, failing))
    assert not Cursor.objects.exists()


@pytest.mark.parametrize("error", [Retry("later"), OperationalError("the database is away")])
def test_an_error_unrelated_to_the_record_leaves_it_in_the_source(declare, read, work, error):
    """A worker that raised such an error did not die, so the record is mapped again."""

    def function(record):
        raise error

    made, kept = declare(Numbers(b"a", b"b"), function), {}
    for attempt in (2, 3):
        with pytest.raises(type(error)):
            read(made, attempt=attempt, restarts=1, kept=kept)
        kept = read.context.kept
    assert not Cursor.objects.exists()
    assert enqueued("tests.tailer.rejected") == []
    mended = replace(made, function=lambda record: work.call(data=record.text()))
    assert read(mended, attempt=4, restarts=1, kept=kept)["rejected"] == 0
    assert data() == ["a", "b"]


def test_a_full_queue_leaves_the_records_in_the_source(declare, read, monkeypatch, work):
    """The source buffers the records; nothing is enqueued beyond ``max_waiting``."""
    full = replace(work, max_waiting=2, max_wait=None)
    monkeypatch.setitem(registry._types, "tests.tailed", full)
    source = Numbers(*[b"a"] * 6)
    made = declare(source, lambda record: full.call(data=record.text()), batch=2)
    found = read(made)
    assert 2 <= found["records"] <= 4
    assert found["behind"] == 6 - found["records"]
    assert any("the source waits" in text for _, text in read.context.messages)
    assert position() == str(found["records"])


def test_a_cursor_moved_by_an_operator_ends_the_attempt(declare, read, work):
    """Records that were read from the old position are not enqueued (G18)."""

    def function(record):
        if record.data == b"b":
            get_store().tailers.seek("tests.tailer", "a", "1")
        return work.call(data=record.text())

    source = Numbers(b"a")
    made = declare(source, function)
    read(made)
    source.records += [b"b", b"c"]
    get_store().tailers.seek("tests.tailer", "a", "0")
    assert read(made)["records"] == 0
    assert (data(), position()) == (["a"], "1")


def test_a_record_that_killed_two_attempts_is_rejected(declare, read, work):
    """The next attempt knows the record from its step and does not call the function (G5)."""
    seen = []

    def function(record):
        seen.append(record.text())
        if record.data == b"b":
            raise KeyboardInterrupt  # stands for the death of the worker
        return work.call(data=record.text())

    made = declare(Numbers(b"a", b"b", b"c"), function)
    with pytest.raises(KeyboardInterrupt):
        read(made)
    assert (data(), seen) == ([], ["a", "b"])
    with pytest.raises(KeyboardInterrupt):
        read(made, attempt=2, restarts=1)
    assert (data(), seen) == (["a"], ["a", "b", "a", "b"])
    found = read(made, attempt=3, restarts=2, kept=read.context.kept)
    assert (found["records"], found["rejected"]) == (2, 1)
    assert (data(), seen[4:]) == (["a", "c"], ["c"])
    [inputs] = enqueued("tests.tailer.rejected")
    assert (inputs["record"]["data"], inputs["error"]) == (
        b"b",
        "an attempt was lost while it mapped this record",
    )


def test_too_many_consecutive_bad_records_stay_in_the_source(declare, read, work, monkeypatch):
    """A faulty release of the function must not turn a whole source into dead letters.

    They are counted across attempts, even if each scan finds only one record.
    """
    assert MOST_REJECTED == 100
    monkeypatch.setattr("atp.tailers.tailer.MOST_REJECTED", 3)
    source = Numbers(*[b"a"] * 4)
    made = declare(source, failing)
    queue.register_all()
    with pytest.raises(Fatal, match="More than 3 records in a row"):
        read(made)
    assert not Cursor.objects.exists()
    assert not Instance.objects.exists()
    # Otherwise each slot would make a dead letter.
    row = queue.get_schedule("tests.tailer")
    assert row.paused_reason.startswith("More than 3 records in a row cannot be mapped")
    source.records.clear()
    for _ in range(3):
        source.records.append(b"a")
        read(made)
    source.records.append(b"a")
    with pytest.raises(Fatal, match="records in a row"):
        read(made)
    assert position() == "3"
    mended = replace(made, function=lambda record: work.call(data=record.text()))
    assert read(mended)["enqueued"] == 1
    source.records.append(b"a")
    assert read(made)["rejected"] == 1


def test_an_attempt_ends_when_it_is_cancelled(declare, read, work):
    def function(record):
        read.context.cancel()
        return work.call(data=record.text())

    made = declare(Numbers(b"a", b"b"), function, batch=1)
    with pytest.raises(Interrupted):
        read(made)
    assert (data(), position()) == (["a"], "1")

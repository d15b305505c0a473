"""An attempt to read: positions, records that are put aside, full queues (G18)."""

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
    """Return the inputs of the Type's Instances, in the order of their enqueue."""
    rows = Inputs.objects.filter(instance__type__identifier=identifier).order_by("instance")
    return [codec.decode(codec.Payload(row.format, row.data)) for row in rows]


def data():
    return [inputs["data"] for inputs in enqueued()]


def position():
    return Cursor.objects.get(tailer="tests.tailer").position


def failing(record):
    raise KeyError("cloud")


def test_a_batch_ends_when_its_inputs_are_large(declare, read, monkeypatch):
    """Whatever the source reads at once."""
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


def test_a_record_that_raises_or_makes_a_bad_call_is_put_aside_and_others_go_on(
    declare, read, work
):
    """G13."""

    def function(record):
        if record.data == b"b":
            raise KeyError("cloud")
        return work.call(**{"date" if record.data == b"d" else "data": record.text()})

    assert read(declare(Numbers(b"a", b"b", b"c", b"d"), function))["rejected"] == 2
    assert data() == ["a", "c"]
    raised, misfit = enqueued("tests.tailer.rejected")
    assert raised["error"] == "KeyError: 'cloud'"
    assert raised["record"]["data"] == b"b"
    assert raised["record"]["position"] == "2"
    assert misfit["error"].startswith("InvalidInputs: ")
    row = Tailer.objects.get()
    assert (row.identifier, row.source, row.behind) == ("tests.tailer", "numbers", 0)
    assert (row.records, row.enqueued, row.rejected) == (4, 2, 2)


def test_a_call_that_the_queue_refuses_puts_its_record_aside(declare, read, work):
    """G13: the identifier is taken, which only the enqueue finds."""
    work.using(identifier="b").enqueue(data="first")
    names = Numbers(b"a", b"b", b"c", b"d")
    made = declare(names, lambda each: work.using(identifier=each.text()).call(data=each.text()))
    assert read(made) == {"records": 4, "enqueued": 3, "rejected": 1, "behind": 0}
    assert data() == ["first", "a", "c", "d"]
    [inputs] = enqueued("tests.tailer.rejected")
    assert inputs["error"].startswith(DuplicateIdentifier.__name__)
    assert position() == "4"


def test_a_record_that_is_too_large_is_kept_in_part(declare, read, settings, atp):
    """G13: it cannot be mapped again, and the log says where the whole of it is."""
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
    assert "of shard 'a' whose position is '1'" in str(run.error)


@pytest.mark.parametrize("error", [Retry("later"), OperationalError("the database is away")])
def test_an_error_that_says_nothing_of_the_record_leaves_it_in_the_source(declare, read, error):
    def function(record):
        raise error

    made = declare(Numbers(b"a"), function)
    with pytest.raises(type(error)):
        read(made)
    assert not Cursor.objects.exists()
    assert enqueued("tests.tailer.rejected") == []


def test_a_full_queue_leaves_the_records_in_the_source(declare, read, monkeypatch, work):
    """The source is the buffer: nothing is enqueued beyond ``max_waiting``."""
    full = replace(work, max_waiting=2, max_wait=None)
    monkeypatch.setitem(registry._types, "tests.tailed", full)
    source = Numbers(*[b"a"] * 6)
    made = declare(source, lambda record: full.call(data=record.text()), batch=2)
    found = read(made)
    assert 2 <= found["records"] <= 4
    assert found["behind"] == 6 - found["records"]
    assert any("the source waits" in text for _, text in read.context.messages)
    assert position() == str(found["records"])


def test_many_bad_records_in_a_row_stay_in_the_source(declare, read):
    """A wrong release of the function does not empty the source into dead letters."""
    made = declare(Numbers(*[b"a"] * (MOST_REJECTED + 1)), failing)
    queue.register_all()
    with pytest.raises(Fatal, match="More than 100 records in a row"):
        read(made)
    assert not Cursor.objects.exists()
    assert not Instance.objects.exists()
    # Otherwise each slot would make a dead letter.
    row = queue.get_schedule("tests.tailer")
    assert row.paused_reason.startswith("More than 100 records in a row cannot be mapped")


def test_a_cursor_that_somebody_moved_ends_the_attempt(declare, read, work):
    """G18: what was read from the old position is not enqueued."""

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


def test_a_record_of_which_an_attempt_died_is_put_aside(declare, read, work):
    """G5: the attempt after finds it by its step, and does not call the function for it."""
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
        "an attempt ended while it was mapped",
    )


def test_a_record_of_which_an_attempt_was_only_ended_is_mapped_again(declare, read, work):
    """It said itself that it is to be tried again: that is no death."""

    def function(record):
        raise Retry("the service is away")

    made = declare(Numbers(b"a", b"b"), function)
    with pytest.raises(Retry):
        read(made, attempt=2, restarts=1)
    with pytest.raises(Retry):
        read(made, attempt=3, restarts=1, kept=read.context.kept)
    mended = replace(made, function=lambda record: work.call(data=record.text()))
    assert read(mended, attempt=4, restarts=1, kept=read.context.kept)["rejected"] == 0
    assert data() == ["a", "b"]


def test_bad_records_in_a_row_are_counted_over_attempts(declare, read, work):
    """Also where each look finds one record."""
    source = Numbers()
    made = declare(source, failing)
    for _ in range(MOST_REJECTED):
        source.records.append(b"a")
        read(made)
    source.records.append(b"a")
    with pytest.raises(Fatal, match="More than 100 records in a row"):
        read(made)
    assert position() == str(MOST_REJECTED)
    mended = replace(made, function=lambda record: work.call(data=record.text()))
    assert read(mended)["enqueued"] == 1
    source.records.append(b"a")
    assert read(made)["rejected"] == 1


def test_a_record_that_cannot_be_kept_is_not_removed(declare, read, settings):
    """G1: a source that forgets what is settled must not forget what nobody else has."""
    settings.ATP = settings.ATP | {"MAX_INPUTS_SIZE": 2000}
    source = Numbers(b"x" * 5000)
    source.removes = True
    with pytest.raises(Fatal, match="can neither be mapped nor be kept as inputs"):
        read(declare(source, failing))
    assert not Cursor.objects.exists()


def test_an_attempt_ends_when_it_is_asked_to(declare, read, work):
    def function(record):
        read.context.cancel()
        return work.call(data=record.text())

    made = declare(Numbers(b"a", b"b"), function, batch=1)
    with pytest.raises(Interrupted):
        read(made)
    assert (data(), position()) == (["a"], "1")

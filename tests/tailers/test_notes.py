"""Notes of a scan are kept, although a successful scan leaves no Instance."""

import logging
from datetime import timedelta

import pytest

from atp import queue
from atp.exceptions import Fatal
from atp.models import Kind, LogRecord, Tailer
from atp.reports import health
from atp.sources import CursorMove, Note
from atp.store import get_store
from atp.tailers import operations as documents

from .conftest import Numbers

NAME = "tests.tailer"


def lost(count, message="records are gone"):
    return Note(kind="lost", count=count, message=message)


def skipped(count, message="names are odd"):
    return Note(kind="skipped", count=count, message=message)


@pytest.fixture
def source():
    return Numbers()


@pytest.fixture
def made(source, declare):
    return declare(source)


def row():
    return Tailer.objects.get(identifier=NAME)


def counts():
    return row().gaps, row().lost, row().passed_over, row().skipped


def daemon_log(caplog):
    return [each for each in caplog.records if each.name == "atp.worker"]


def logged(kind):
    records = LogRecord.objects.about(f"type:{NAME}").filter(kind=kind)
    return list(records.values_list("message", "detail"))


def test_lost_records_are_counted_and_logged_when_the_cursor_moves(source, made, read, caplog):
    """The log of the Type keeps the loss, although the attempt leaves no Instance (G18)."""
    notes = [lost(17), lost(None, "the stream ends early"), skipped(3)]
    source.jump = CursorMove(shard="a", before=None, after="20", notes=notes)
    read(made)
    assert counts() == (2, 17, 3, 0)
    assert row().lost_at is not None
    assert any("17 have been lost" in each for each in health.health().problems)
    told = [("records are gone", "17"), ("the stream ends early", ""), ("names are odd", "3")]
    assert logged(Kind.GAP) == told
    facts = [(each.fact, each.values["count"]) for each in daemon_log(caplog)]
    assert facts == [("source_passed_over", count) for count in (17, None, 3)]


def test_losses_are_not_counted_if_the_cursor_move_is_not_committed(source, made, read):
    """Somebody else has moved the cursor first (G18)."""
    source.jump = CursorMove(shard="a", before="7", after="20", notes=[lost(17)])
    read(made)
    assert (counts(), logged(Kind.GAP)) == ((0, 0, 0, 0), [])
    assert row().notes == "a cursor was moved during this attempt; the next attempt goes on there"


def test_skipped_records_are_reported_once_or_once_an_hour_if_they_change_and_when_resolved(
    source, made, read, caplog
):
    """The row of the tailer always has the newest notes."""
    source.notes = [skipped(2), skipped(None, "a folder is closed")]
    for _ in range(3):
        read(made)
    assert row().skipped == 3
    assert row().notes == "names are odd\na folder is closed"
    assert logged(Kind.SOURCE) == [("names are odd; a folder is closed", "3")]
    assert any("cannot read 3 records of its source" in each for each in health.health().problems)
    assert [each.levelno for each in daemon_log(caplog)] == [logging.WARNING] * 2
    source.notes = [skipped(2, "two names are odd")]
    read(made)
    assert len(logged(Kind.SOURCE)) == 1
    assert (row().skipped, row().notes) == (2, "two names are odd")
    LogRecord.objects.filter(kind=Kind.SOURCE).update(time=get_store().now() - timedelta(hours=2))
    read(made)
    assert logged(Kind.SOURCE)[1:] == [("two names are odd", "2")]
    source.notes = []
    for _ in range(2):
        read(made)
    assert (row().skipped, row().notes) == (0, "")
    assert logged(Kind.SOURCE)[2:] == [("everything in the source can be read again", "0")]
    # Records that only wait are noted, but not counted.
    source.notes = [Note(kind="waiting", count=5, message="5 rows are locked")]
    read(made)
    assert (row().skipped, row().notes) == (0, "5 rows are locked")


def test_notes_are_validated_and_their_text_is_cleaned(source, made, read):
    """Names in a source can contain any characters (G13)."""
    with pytest.raises(ValueError, match="must be one of"):
        Note(kind="gone", count=1, message="1 is gone")
    with pytest.raises(ValueError, match="must be 0 or more"):
        lost(-1)
    source.notes = [skipped(1, "a\x00b \udcff\nc")]
    read(made)
    assert row().notes == "a\N{REPLACEMENT CHARACTER}b ? c"


def test_a_tailer_that_pauses_itself_says_why(source, made, read):
    def fail(positions):
        raise Fatal("the position\u200b\nis odd")

    def reported():
        [found] = documents.documents(queue.tailers())
        return found["state"], found["why"]

    opened, source.open = source.open, fail
    queue.register_all()
    with pytest.raises(Fatal):
        read(made)
    assert reported() == ("paused", "the position is odd")
    assert queue.get_schedule(NAME).paused_reason == "the position is odd"
    [problem] = [each for each in health.health().problems if "tests.tailer" in each]
    assert problem.startswith("Tailer 'tests.tailer' has paused its schedule: the position is odd")
    assert queue.explain(NAME).codes[0] == "schedule-paused"
    queue.resume_schedule(NAME)
    assert reported() == ("failing", "the position is odd")
    assert not any("paused its schedule" in each for each in health.health().problems)
    assert "schedule-paused" not in queue.explain(NAME).codes
    source.open = opened
    read(made)
    assert reported() == ("reading", "")

"""The positions of tailers in the store: they move by comparison, and never back (G18)."""

from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from atp.exceptions import InvalidOption, TaskGone
from atp.models import Cursor, LogRecord, Tailer
from atp.rows.log import Kind
from atp.states import Event, State
from atp.store.values import CursorMove, Move, Settled

from .world import registration

NAME = "tests.tailer"


@pytest.fixture
def tailers(world):
    return world.store.tailers


def move(before, after, shard="a"):
    return CursorMove(shard=shard, before=before, after=after)


def advance(tailers, *moves, **counts):
    """Advance in a transaction, which is rolled back if a cursor was elsewhere."""
    with transaction.atomic():
        done = tailers.advance(NAME, moves, Settled(**{"records": 1, **counts}))
        transaction.set_rollback(not done)
    return done


def test_cursors_are_made_and_moved(tailers):
    assert tailers.positions(NAME) == {}
    assert advance(tailers, move(None, "1"), move(None, "7", "b"))
    assert advance(tailers, move("1", "2"))
    assert tailers.positions(NAME) == {"a": "2", "b": "7"}
    assert tailers.positions("tests.other") == {}


@pytest.mark.parametrize("before", [None, "1", "3", ""])
def test_a_cursor_that_is_elsewhere_is_not_moved(tailers, before):
    """G18."""
    advance(tailers, move(None, "1"))
    advance(tailers, move("1", "2"))
    assert not advance(tailers, move(before, "9"), move(None, "9", "b"))
    assert tailers.positions(NAME) == {"a": "2"}


def test_one_that_does_not_exist_is_not_moved(tailers):
    assert not advance(tailers, move("1", "2"))
    assert tailers.positions(NAME) == {}


def test_counts_are_added(tailers):
    assert tailers.begin(NAME, source="numbers") == 0
    advance(tailers, move(None, "1"), records=3, enqueued=2, rejected=1)
    advance(tailers, move("1", "2"), records=5, enqueued=5)
    tailers.look(NAME, source="other numbers", behind=7)
    row = Tailer.objects.get()
    assert (row.records, row.enqueued, row.rejected) == (8, 7, 1)
    assert (row.source, row.behind) == ("other numbers", 7)


def test_a_long_source_is_cut(tailers):
    tailers.begin(NAME, source="x" * 600)
    assert Tailer.objects.get().source == "x" * 500


def test_a_cursor_is_removed_when_its_shard_is_missing_for_long(tailers):
    advance(tailers, move(None, "1"), move(None, "1", "b"), move(None, "1", "c"))
    tailers.miss(NAME, ["a", "b"], ["c"], for_=timedelta(hours=1))
    assert Cursor.objects.filter(missing_since=None).get().shard == "c"
    tailers.miss(NAME, ["b"], ["a", "c"], for_=timedelta(hours=1))
    assert Cursor.objects.exclude(missing_since=None).get().shard == "b"
    tailers.miss(NAME, ["b"], ["a", "c"], for_=timedelta(0))
    assert tailers.positions(NAME).keys() == {"a", "c"}


def test_shards_that_are_missing_or_there_as_before_are_not_written_again(tailers):
    """A source may have a hundred thousand of them, and a look every five seconds."""
    advance(tailers, move(None, "1"), move(None, "1", "b"))
    tailers.miss(NAME, ["a"], ["b"], for_=timedelta(hours=1))
    with CaptureQueriesContext(connection) as found:
        tailers.miss(NAME, ["a"], ["b"], for_=timedelta(hours=1))
    assert [each["sql"] for each in found if not each["sql"].startswith("SELECT")] == []


def test_it_is_removed_with_its_type(world, tailers):
    world.store.register([registration(NAME)])
    tailers.begin(NAME, source="numbers")
    advance(tailers, move(None, "1"))
    world.store.unregister(NAME)
    assert not Tailer.objects.exists()
    assert not Cursor.objects.exists()


def test_an_operator_sets_a_position_and_the_log_tells(tailers):
    advance(tailers, move(None, "1"))
    tailers.seek(NAME, "a", "0", who="ann")
    assert tailers.positions(NAME) == {"a": "0"}
    tailers.seek(NAME, "a", None, who="ann")
    assert tailers.positions(NAME) == {}
    found = LogRecord.objects.filter(kind=Kind.CURSOR).order_by("pk")
    assert list(found.values_list("subject", "detail", "who")) == [
        (f"type:{NAME}", "a", "ann"),
        (f"type:{NAME}", "a", "ann"),
    ]


@pytest.mark.parametrize("position", ["5", None])
def test_a_shard_that_is_not_there_is_an_error(tailers, position):
    """G13: it is mistyped."""
    advance(tailers, move(None, "1", "scenes/0"))
    with pytest.raises(InvalidOption, match=r"no cursor of shard 'scene/0'. Did you mean"):
        tailers.seek(NAME, "scene/0", position)
    assert tailers.positions(NAME) == {"scenes/0": "1"}


def test_rejected_ones_in_a_row_are_remembered(tailers):
    tailers.begin(NAME, source="numbers")
    advance(tailers, rejected=1, rejected_in_a_row=7)
    assert tailers.begin(NAME, source="numbers") == 7
    advance(tailers, records=0)
    assert tailers.begin(NAME, source="numbers") == 7


def test_an_attempt_holds_its_task(world):
    """G4: the fence of a transaction of a handler."""
    case = world.bring_to(State.RUNNING, world.host())
    with transaction.atomic():
        assert world.store.steps.hold(case.instance, case.attempt)


def test_an_attempt_that_was_lost_holds_nothing(world):
    """G4."""
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    lost = Move(event=Event.RELEASE, instance=case.instance, attempt=case.attempt)
    assert host.record(lost) == []
    with pytest.raises(TaskGone), transaction.atomic():
        world.store.steps.hold(case.instance, case.attempt)

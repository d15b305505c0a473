"""The positions of tailers in the store: they move by comparison, and never back (G18)."""

import pytest
from django.db import transaction

from atp.exceptions import InvalidOption
from atp.models import Cursor, Kind, LogRecord, Tailer
from atp.store.values import CursorMove, Settled

from .world import HOUR, registration

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


def test_cursors_are_made_and_moved_and_counts_are_added(tailers):
    """G18: one that is elsewhere or nowhere is not moved."""
    assert tailers.positions(NAME) == {}
    assert not advance(tailers, move("1", "2"))
    assert tailers.begin(NAME, source="numbers") == 0
    assert advance(
        tailers, move(None, "1"), move(None, "7", "b"), records=3, enqueued=2, rejected=1
    )
    assert advance(tailers, move("1", "2"), records=5, enqueued=5)
    for before in (None, "1", "3", ""):
        assert not advance(tailers, move(before, "9"), move(None, "9", "c")), before
        assert tailers.positions(NAME) == {"a": "2", "b": "7"}
    assert tailers.positions("tests.other") == {}
    tailers.look(NAME, source="other numbers", behind=7)
    row = Tailer.objects.get()
    assert (row.records, row.enqueued, row.rejected) == (8, 7, 1)
    assert (row.source, row.behind) == ("other numbers", 7)
    advance(tailers, rejected=1, rejected_in_a_row=7)
    assert tailers.begin(NAME, source="numbers") == 7
    advance(tailers, records=0)
    assert tailers.begin(NAME, source="numbers") == 7


def test_a_cursor_is_removed_when_its_shard_is_missing_for_long_and_with_its_type(world, tailers):
    tailers.begin(NAME, source="numbers")
    advance(tailers, move(None, "1"), move(None, "1", "b"), move(None, "1", "c"))
    tailers.miss(NAME, ["a", "b"], ["c"], for_=HOUR)
    assert Cursor.objects.filter(missing_since=None).get().shard == "c"
    tailers.miss(NAME, ["b"], ["a", "c"], for_=HOUR)
    assert Cursor.objects.exclude(missing_since=None).get().shard == "b"
    tailers.miss(NAME, ["b"], ["a", "c"], for_=0 * HOUR)
    assert tailers.positions(NAME).keys() == {"a", "c"}
    world.store.types.register([registration(NAME)])
    world.store.types.unregister(NAME)
    assert not Tailer.objects.exists()
    assert not Cursor.objects.exists()


def test_an_operator_sets_a_position_and_the_log_tells(tailers):
    """G13: a shard that is not there is mistyped."""
    advance(tailers, move(None, "1", "scenes/0"))
    with pytest.raises(InvalidOption, match=r"no cursor of shard 'scene/0'. Did you mean"):
        tailers.seek(NAME, "scene/0", "5")
    for position, found in (("0", {"scenes/0": "0"}), (None, {})):
        tailers.seek(NAME, "scenes/0", position, who="ann")
        assert tailers.positions(NAME) == found
    records = LogRecord.objects.filter(kind=Kind.CURSOR).values_list("subject", "detail", "who")
    assert list(records) == [(f"type:{NAME}", "scenes/0", "ann")] * 2

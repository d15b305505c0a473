"""The unrecorded: order, batches, and what is forgotten after an identity was renewed."""

from dataclasses import replace
from datetime import UTC, datetime

from atp.daemon.dispatcher.unrecorded import BATCH, UnrecordedChanges
from atp.states import Event, State
from atp.store.values import Message, Move, Note


def move(instance, event=Event.START, attempt=1):
    return Move(event=event, instance=instance, attempt=attempt)


def message(text):
    return Message(time=datetime.now(UTC), level=20, text=text)


def test_batches_are_of_one_kind_and_in_order():
    unrecorded = UnrecordedChanges()
    note = Note(instance=1, attempt=1, messages=(message("hello"),))
    unrecorded.add(move(1), move(2), note, move(1, Event.FINISH))
    assert unrecorded.take() == [move(1), move(2)]
    assert unrecorded.take() == []
    unrecorded.acknowledge()
    assert unrecorded.take() == [note]
    unrecorded.give_back()
    assert unrecorded.take() == [replace(note, again=True)]
    unrecorded.acknowledge()
    assert unrecorded.take() == [move(1, Event.FINISH)]
    unrecorded.acknowledge()
    assert len(unrecorded) == 0


def test_a_batch_has_an_end():
    unrecorded = UnrecordedChanges()
    unrecorded.add(*(move(n) for n in range(BATCH + 1)))
    assert len(unrecorded.take()) == BATCH
    assert len(unrecorded) == BATCH + 1


def test_notes_of_an_attempt_are_merged():
    first, second = message("one"), message("two")
    unrecorded = UnrecordedChanges()
    unrecorded.add(
        Note(instance=1, attempt=1, messages=(first,)),
        Note(instance=1, attempt=1, progress=0.5, progress_message="half"),
        Note(instance=2, attempt=1, files=({"name": "a"},)),
        Note(instance=1, attempt=1, messages=(second,)),
    )
    merged, other = unrecorded.take()
    assert merged.messages == (first, second)
    assert (merged.progress, merged.progress_message) == (0.5, "half")
    assert other.files == ({"name": "a"},)


def test_what_is_recorded_is_forgotten_and_what_is_gone_is_told():
    """A start whose acknowledgement got lost is not written twice (G6); see G4 for the other."""
    unrecorded = UnrecordedChanges()
    unrecorded.add(move(1), move(1, Event.FINISH), move(2), move(3, Event.FINISH))
    assert unrecorded.keys() == {(1, 1), (2, 1), (3, 1)}
    kept = {(1, 1): State.RUNNING, (2, 1): State.SCHEDULED}
    unrecorded.keep(kept)
    assert unrecorded.take() == [move(1, Event.FINISH), move(2), move(3, Event.FINISH)]
    assert [unrecorded.is_doubtful(move(n)) for n in (1, 2, 3)] == [False, False, True]
    unrecorded.acknowledge()
    assert not unrecorded.is_doubtful(move(3))


def test_what_cannot_be_written_is_tried_in_smaller_pieces():
    """G11: a batch that takes longer than a statement may is not tried for ever."""
    unrecorded = UnrecordedChanges()
    unrecorded.add(*(move(n) for n in range(BATCH)))
    sizes = []
    for _ in range(3):
        sizes.append(len(unrecorded.take()))
        unrecorded.give_back()
        unrecorded.shrink()
    assert sizes == [BATCH, BATCH // 2, BATCH // 4]
    while unrecorded.take():
        unrecorded.acknowledge()
    unrecorded.add(*(move(n) for n in range(BATCH)))
    assert len(unrecorded.take()) == BATCH

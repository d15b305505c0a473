"""The ledger: order, batches, and what is forgotten after an identity was renewed."""

from dataclasses import replace
from datetime import UTC, datetime

from atp.daemon.ledger import BATCH, Ledger
from atp.states import Event, State
from atp.store.values import Change, Message, Note


def change(instance, event=Event.START, attempt=1):
    return Change(event=event, instance=instance, attempt=attempt)


def message(text):
    return Message(time=datetime.now(UTC), level=20, text=text)


def test_batches_are_of_one_kind_and_in_order():
    ledger = Ledger()
    note = Note(instance=1, attempt=1, messages=(message("hello"),))
    ledger.add(change(1), change(2), note, change(1, Event.FINISH))
    assert ledger.take() == [change(1), change(2)]
    assert ledger.take() == []
    ledger.acknowledge()
    assert ledger.take() == [note]
    ledger.give_back()
    assert ledger.take() == [replace(note, again=True)]
    ledger.acknowledge()
    assert ledger.take() == [change(1, Event.FINISH)]
    ledger.acknowledge()
    assert len(ledger) == 0


def test_a_batch_has_an_end():
    ledger = Ledger()
    ledger.add(*(change(n) for n in range(BATCH + 1)))
    assert len(ledger.take()) == BATCH
    assert len(ledger) == BATCH + 1


def test_notes_of_an_attempt_are_merged():
    first, second = message("one"), message("two")
    ledger = Ledger()
    ledger.add(
        Note(instance=1, attempt=1, messages=(first,)),
        Note(instance=1, attempt=1, progress=0.5, progress_message="half"),
        Note(instance=2, attempt=1, files=({"name": "a"},)),
        Note(instance=1, attempt=1, messages=(second,)),
    )
    merged, other = ledger.take()
    assert merged.messages == (first, second)
    assert (merged.progress, merged.progress_message) == (0.5, "half")
    assert other.files == ({"name": "a"},)


def test_what_is_recorded_is_forgotten_and_what_is_gone_is_told():
    """A start whose acknowledgement got lost is not written twice (G6); see G4 for the other."""
    ledger = Ledger()
    ledger.add(change(1), change(1, Event.FINISH), change(2), change(3, Event.FINISH))
    assert ledger.keys() == {(1, 1), (2, 1), (3, 1)}
    kept = {(1, 1): State.RUNNING, (2, 1): State.SCHEDULED}
    ledger.keep(kept)
    assert ledger.take() == [change(1, Event.FINISH), change(2), change(3, Event.FINISH)]
    assert [ledger.is_doubtful(change(n)) for n in (1, 2, 3)] == [False, False, True]
    ledger.acknowledge()
    assert not ledger.is_doubtful(change(3))


def test_what_cannot_be_written_is_tried_in_smaller_pieces():
    """G11: a batch that takes longer than a statement may is not tried for ever."""
    ledger = Ledger()
    ledger.add(*(change(n) for n in range(BATCH)))
    sizes = []
    for _ in range(3):
        sizes.append(len(ledger.take()))
        ledger.give_back()
        ledger.shrink()
    assert sizes == [BATCH, BATCH // 2, BATCH // 4]
    while ledger.take():
        ledger.acknowledge()
    ledger.add(*(change(n) for n in range(BATCH)))
    assert len(ledger.take()) == BATCH

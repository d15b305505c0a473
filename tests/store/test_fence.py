"""The fence: what an attempt writes after its Task was taken away (G4)."""

import logging
from dataclasses import replace

import pytest

from atp import messages
from atp.models import Kind, LogRecord, Response, Type
from atp.states import CLAIMED, Event, Reason, State
from atp.store.values import Message, ProgressUpdate, ResponseData

from ..nonsense import tells
from .world import ONE, SECOND, file_of, move_of


def late_writes(world, case):
    """Everything that the holder of an attempt can say, as (verb, value) pairs."""
    answer = ResponseData(content_type="text/plain", data=b"late", size=4)
    for event in Event:
        reason = Reason.ERROR if event == Event.FAIL else ""
        response = answer if event == Event.FINISH else None
        yield world.store.records.record, move_of(case, event, reason=reason, response=response)
    own = {"instance": case.instance, "attempt": case.number}
    said = (Message(time=world.store.now(), level=20, text="late"),)
    yield world.store.records.note, ProgressUpdate(**own, progress=0.9, progress_message="late")
    yield world.store.records.note, ProgressUpdate(**own, messages=said)
    yield world.store.records.note, ProgressUpdate(**own, files=(file_of(),))


def nothing_gets_through(world, case, host):
    """But for the words that keep the refusal."""
    before = world.snapshot()
    for verb, value in late_writes(world, case):
        assert verb([value], daemon=host.uuid) == [value]
    assert world.snapshot() == before


def kept(case):
    """The refusals that were kept, oldest first."""
    kinds = (Kind.LATE, Kind.REFUSED)
    return list(LogRecord.objects.filter(kind__in=kinds, attempt=case.number).order_by("pk"))


@pytest.mark.slow
def test_after_a_sweep_and_a_claim_by_another(world):
    """G4: the late writer neither hurts nor ends the attempt of another daemon.

    The number of the attempt is the fence, not only the daemon: the same may have claimed it
    again, and a dispatcher that takes over has not been told of its second attempt.
    """
    for state in sorted(CLAIMED):
        with world.case(state):
            host, other = world.host(), world.host()
            case = world.bring_to(state, host)
            host.lose_lease()
            assert world.store.daemons.sweep(daemon=other.uuid).expired == 1
            nothing_gets_through(world, case, host)
            [first] = other.claim()
            assert (first.instance, first.number) == (case.instance, case.number + 1)
            nothing_gets_through(world, case, host)
            other.move(first, Event.START, Event.EXPIRE)
            nothing_gets_through(world, first, other)
            [second] = other.claim()
            nothing_gets_through(world, first, other)
            other.move(second, Event.START)
            nothing_gets_through(world, first, other)
            assert world.host(old=other.uuid, holding=()).joined.expired == 1
            nothing_gets_through(world, second, other)
            new = world.host()
            [third] = new.claim()
            nothing_gets_through(world, second, other)
            assert third.number == case.number + 3
            new.move(third, Event.START, Event.FINISH)
            nothing_gets_through(world, case, host)


@pytest.fixture
def taken(world, host, case):
    """An attempt that was taken away from its daemon, and that daemon."""
    host.lose_lease()
    world.store.daemons.sweep()
    return case, host


def test_a_number_from_the_future_or_what_was_removed_is_refused_too(world, host, case):
    """G4: the fence is equality, nothing about order or time."""
    nothing_gets_through(world, type(case)(case.instance, case.number + 1), host)
    nothing_gets_through(world, type(case)(case.instance, None), host)
    host.move(case, Event.FINISH)
    assert world.store.removal.purge(instances=[case.instance]) == 1
    nothing_gets_through(world, case, host)


def test_a_lease_that_has_run_out_does_not_refuse_who_still_holds(world, host, case):
    """Time passing only entitles a sweep to take the Task away."""
    host.lose_lease()
    host.move(case, Event.FINISH)
    assert world.store.daemons.sweep().expired == 0
    assert world.state(case.instance) == State.FINISHED


def counted():
    return Type.objects.get(identifier=ONE).late_writes


def finish(case, event=Event.FINISH, **facts):
    return move_of(case, event, who="host:1 worker 0", **facts)


@pytest.mark.parametrize(
    ("event", "seconds", "transactional"),
    [
        (Event.FINISH, 41, False),
        (Event.FAIL, -3, False),
        (Event.FINISH, 5, True),
        (Event.RETRY, None, True),
    ],
)
def test_late_result_is_kept_once_and_counted(world, taken, event, seconds, transactional):
    """G4, G7: what it says, and how long after; or that nothing that it wrote has happened."""
    case, host = taken
    [lost] = LogRecord.objects.filter(kind="expire").values_list("time", flat=True)
    time = seconds and lost + seconds * SECOND
    late = finish(case, event, time=time, message="why", transactional=transactional)
    for _ in range(2):  # told again because the answer got lost
        assert host.record(late) == [late]
    [record] = kept(case)
    assert (record.kind, record.level) == (Kind.LATE, logging.WARNING)
    assert record.detail == (f"{event} {time.isoformat()}" if time else event)
    told = messages.late_result(1, event, seconds, transactional=transactional)
    assert tells(record.message, told)
    assert record.message.endswith("\nwhy")
    other = late._replace(time=lost + 60 * SECOND)
    assert host.record(other) == [other]
    assert (len(kept(case)), counted()) == (2, 1)  # an attempt counts once
    world.check()


def test_its_own_end_that_comes_too_late_counts_for_nobody_and_late_notes_count_once(world, taken):
    """G4: what a daemon took for lost that another had taken away, and goes on saying."""
    case, host = taken
    change = finish(case, event=Event.EXPIRE, time=world.store.now())
    assert host.record(change) == [change]
    assert [record.kind for record in kept(case)] == [Kind.REFUSED]
    assert counted() == 0
    for number in range(5):
        note = ProgressUpdate(instance=case.instance, attempt=case.number, progress=number / 10)
        assert world.store.records.note([note, note], daemon=host.uuid) == [note, note]
    assert [record.kind for record in kept(case)] == [Kind.REFUSED, Kind.LATE]
    assert counted() == 1


def test_what_is_said_again_is_kept_once(world, host, case):
    """G6: the acknowledgement of messages and files got lost."""
    said = (Message(time=world.store.now(), level=30, text="once"),)
    own = {"instance": case.instance, "attempt": case.number, "who": "host:1 worker 0"}
    note = ProgressUpdate(**own, messages=said, files=(file_of(),))
    again = replace(note, again=True)
    for each in (note, again):
        assert world.store.records.note([each], daemon=host.uuid) == []
    assert LogRecord.objects.filter(message="once").count() == 1
    assert len(Response.objects.get().files) == 1
    host.lose_lease()
    world.store.daemons.sweep()
    assert world.store.records.note([again], daemon=host.uuid) == []  # it was in time
    assert kept(case) == []
    assert counted() == 0
    more = replace(again, messages=(*said, replace(said[0], text="late")))
    assert world.store.records.note([more], daemon=host.uuid) == [more]
    assert len(kept(case)) == 1


@pytest.mark.parametrize("event", [Event.FINISH, Event.FAIL])
def test_what_was_written_is_not_late(world, host, case, event):
    """G4, G11: a commit whose outcome is unknown is looked up before it is called late.

    And who ended and then was found dead has lost nothing.
    """
    reason = Reason.ERROR if event == Event.FAIL else ""
    change = finish(case, event=event, time=world.store.now(), message="once", reason=reason)
    assert host.record(change) == []
    before = world.snapshot()
    assert host.record(change) == []
    for death in (Event.EXPIRE, Event.RELEASE):
        dead = finish(case, event=death)
        assert host.record(dead) == [dead]
    assert world.snapshot() == before
    assert kept(case) == []


def test_write_of_an_ended_identity_is_not_late(world, host, case):
    """G4: its daemon still holds the Task, under another name, and will say it again."""
    newer = world.host(old=host.uuid, holding=[(case.instance, case.number)])
    change = finish(case)
    assert host.record(change) == [change]
    assert kept(case) == []
    assert world.store.records.record([change], daemon=newer.uuid) == []

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

HELD = sorted(CLAIMED)


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
    """G4: the late writer neither hurts nor ends the attempt of another daemon."""
    for state in HELD:
        with world.case(state):
            host, other = world.host(), world.host()
            case = world.bring_to(state, host)
            host.lose_lease()
            assert world.store.daemons.sweep(daemon=other.uuid).expired == 1
            nothing_gets_through(world, case, host)
            [again] = other.claim()
            assert again.instance == case.instance
            nothing_gets_through(world, case, host)
            other.move(again, Event.START)
            nothing_gets_through(world, case, host)
            other.move(again, Event.FINISH)
            nothing_gets_through(world, case, host)


@pytest.fixture
def taken(world, host, case):
    """An attempt that was taken away from its daemon, and that daemon."""
    host.lose_lease()
    world.store.daemons.sweep()
    return case, host


@pytest.mark.slow
def test_after_the_same_daemon_has_claimed_it_again_or_its_identity_has_ended(world):
    """G4: the attempt number is the fence, not only the daemon.

    A new dispatcher that takes over has not been told of the second attempt.
    """
    for state in HELD:
        with world.case(state):
            host, other = world.host(), world.host()
            case = world.bring_to(state, host)
            host.move(case, Event.EXPIRE)
            nothing_gets_through(world, case, host)
            [again] = host.claim()
            assert again.number == case.number + 1
            nothing_gets_through(world, case, host)
            host.move(again, Event.START)
            nothing_gets_through(world, case, host)
            assert world.host(old=host.uuid, holding=()).joined.expired == 1
            nothing_gets_through(world, again, host)
            [third] = other.claim()
            nothing_gets_through(world, again, host)
            assert third.number == again.number + 1


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


def test_late_result_is_kept_once_and_counted(world, taken):
    """G4: what a result that came too late says, and how long after."""
    case, host = taken
    [taken] = LogRecord.objects.filter(kind="expire").values_list("time", flat=True)
    late = finish(case, time=taken + 41 * SECOND)
    for _ in range(2):  # told again because the answer got lost
        assert world.store.records.record([late], daemon=host.uuid) == [late]
    [record] = kept(case)
    assert (record.kind, record.level) == (Kind.LATE, logging.WARNING)
    assert record.detail == f"finish {late.time.isoformat()}"
    told = messages.late_result(1, Event.FINISH, 41, transactional=False)
    assert tells(record.message, told)
    assert counted() == 1
    early = late._replace(event=Event.FAIL, time=taken - 3 * SECOND, message="why")
    assert world.store.records.record([early], daemon=host.uuid) == [early]
    [record] = kept(case)[1:]
    told = messages.late_result(1, Event.FAIL, -3, transactional=False)
    assert tells(record.message, told)
    assert record.message.endswith("\nwhy")
    assert counted() == 1  # an attempt counts once
    world.check()


@pytest.mark.parametrize("event", [Event.FINISH, Event.RETRY])
def test_late_end_of_a_transactional_attempt(world, taken, event):
    """G4, G7: however it ended, nothing that it wrote has happened at all."""
    case, host = taken
    late = finish(case, event=event, message="why", transactional=True)
    assert world.store.records.record([late], daemon=host.uuid) == [late]
    [record] = kept(case)
    assert tells(record.message, messages.late_result(1, event, None, transactional=True))
    assert record.message.endswith("\nwhy")
    assert counted() == 1


def test_its_own_end_that_comes_too_late_counts_for_nobody_and_late_notes_count_once(world, taken):
    """G4: what a daemon took for lost that another had taken away, and goes on saying."""
    case, host = taken
    change = finish(case, event=Event.EXPIRE, time=world.store.now())
    assert world.store.records.record([change], daemon=host.uuid) == [change]
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
    assert world.store.records.record([change], daemon=host.uuid) == []
    before = world.snapshot()
    assert world.store.records.record([change], daemon=host.uuid) == []
    for death in (Event.EXPIRE, Event.RELEASE):
        dead = finish(case, event=death)
        assert world.store.records.record([dead], daemon=host.uuid) == [dead]
    assert world.snapshot() == before
    assert kept(case) == []


def test_write_of_an_ended_identity_is_not_late(world, host, case):
    """G4: its daemon still holds the Task, under another name, and will say it again."""
    newer = world.host(old=host.uuid, holding=[(case.instance, case.number)])
    change = finish(case)
    assert world.store.records.record([change], daemon=host.uuid) == [change]
    assert kept(case) == []
    assert world.store.records.record([change], daemon=newer.uuid) == []

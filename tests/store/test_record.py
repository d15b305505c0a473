"""The store contract: record."""

import logging
from datetime import timedelta

import pytest

from atp.models import Response
from atp.states import Event, Reason, State
from atp.store.values import Move, ResponseData

from .world import SECOND, Case


def changes(case, *events, **details):
    return [
        Move(event=event, instance=case.instance, attempt=case.attempt, **details)
        for event in events
    ]


def test_nothing_to_record(world):
    assert world.store.record([]) == []
    assert world.host().record() == []


def test_events_of_one_instance_are_applied_in_order_each_with_its_time(world):
    """G6: a short task may reach the database in one statement, with its true times."""
    host = world.host()
    case = world.bring_to(State.SCHEDULED, host)
    now = world.store.now()
    host.record(
        *changes(case, Event.START, time=now - 2 * SECOND),
        *changes(case, Event.FINISH, time=now - SECOND),
    )
    instance = world.get(case.instance)
    assert (instance.started, instance.finished) == (now - 2 * SECOND, now - SECOND)
    assert [(r.event, r.time) for r in world.log(case.instance)[2:]] == [
        (Event.START, now - 2 * SECOND),
        (Event.FINISH, now - SECOND),
    ]


def test_a_refused_change_leaves_the_others_of_its_batch(world):
    host = world.host()
    cases = [world.bring_to(State.RUNNING, host) for _ in range(3)]
    stale = Move(event=Event.FINISH, instance=cases[1].instance, attempt=99)
    unknown = Move(event=Event.FINISH, instance=2**40, attempt=1)
    first, last = changes(cases[0], Event.FINISH) + changes(cases[2], Event.FINISH)
    assert host.record(first, stale, unknown, last) == [stale, unknown]
    states = [world.state(case.instance) for case in cases]
    assert states == [State.FINISHED, State.RUNNING, State.FINISHED]


def test_what_follows_a_refused_change_is_judged_by_itself(world):
    host = world.host()
    case = world.bring_to(State.SCHEDULED, host)
    finish, start, again = changes(case, Event.FINISH, Event.START, Event.FINISH)
    assert host.record(finish, start, again) == [finish]
    assert world.events(case.instance)[-2:] == [Event.START, Event.FINISH]


def test_after_the_end_of_an_attempt_its_batch_can_do_nothing_more(world):
    """G4: the fence holds within a batch as well."""
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    retry, finish = changes(case, Event.RETRY, Event.FINISH)
    assert host.record(retry, finish) == [finish]
    assert world.state(case.instance) == State.ACCEPTED


def test_somebody_may_fail_and_redrive_in_one_batch(world):
    """G1: whatever the order, the Task row goes with the state."""
    [key] = world.enqueue()
    fail = Move(event=Event.FAIL, instance=key, reason=Reason.CANCELLED)
    redrive = Move(event=Event.REDRIVE, instance=key)
    assert world.store.record([fail, redrive]) == []
    assert (world.state(key), world.task(key) is None) == (State.ACCEPTED, False)
    assert world.store.record([fail, redrive, fail]) == []
    assert (world.state(key), world.task(key)) == (State.FAILED, None)
    assert world.store.record([redrive, fail]) == []
    assert (world.state(key), world.task(key)) == (State.FAILED, None)


@pytest.mark.parametrize("event", [Event.RETRY, Event.DEFER])
def test_a_delay_counts_from_now(world, event):
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    before = world.store.now()
    host.record(*changes(case, event, delay=timedelta(minutes=10)))
    due = world.task(case.instance).due_at
    assert before + timedelta(minutes=10) <= due <= world.store.now() + timedelta(minutes=10)
    assert host.claim() == []


def test_a_retry_spends_a_retry_and_a_deferral_does_not(world):
    host = world.host()
    retried, deferred = (world.bring_to(State.RUNNING, host) for _ in range(2))
    host.record(*changes(retried, Event.RETRY), *changes(deferred, Event.DEFER))
    first, second = world.get(retried.instance), world.get(deferred.instance)
    assert (first.retries, first.restarts, first.lost) == (1, 0, 0)
    assert (second.retries, second.restarts, second.lost) == (0, 0, 0)


def test_without_a_time_it_is_the_databases_now(world):
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    before = world.store.now()
    host.move(case, Event.FINISH)
    assert before <= world.get(case.instance).finished <= world.store.now()


def test_a_start_clears_the_progress_of_an_earlier_attempt(world):
    from atp.store.values import Note

    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    note = Note(
        instance=case.instance, attempt=case.attempt, progress=0.7, progress_message="seven"
    )
    world.store.note([note], daemon=host.uuid)
    host.move(case, Event.RETRY)
    [again] = host.claim()
    host.move(again, Event.START)
    instance = world.get(case.instance)
    assert (instance.progress, instance.progress_message) == (None, "")


class TestResponse:
    def test_it_is_written_with_the_finish(self, world):
        host = world.host()
        case = world.bring_to(State.RUNNING, host)
        answer = ResponseData(content_type="application/json", data=b'{"a":1}', size=7)
        host.record(*changes(case, Event.FINISH, response=answer))
        response = Response.objects.get(pk=case.instance)
        assert (response.value, response.size, response.file) == ({"a": 1}, 7, "")
        assert world.get(case.instance).progress == 1.0

    def test_it_may_be_a_stored_file(self, world):
        host = world.host()
        case = world.bring_to(State.RUNNING, host)
        answer = ResponseData(content_type="image/png", data=None, file="atp/x/1-r", size=10**10)
        host.record(*changes(case, Event.FINISH, response=answer))
        response = Response.objects.get(pk=case.instance)
        assert (response.data, response.file, response.size) == (None, "atp/x/1-r", 10**10)
        assert response.stored_paths == ["atp/x/1-r"]

    def test_published_files_stay_beside_it(self, world):
        from atp.store.values import Note

        host = world.host()
        case = world.bring_to(State.RUNNING, host)
        file = {"name": "a", "path": "atp/a", "content_type": "x/y", "size": 1, "attempt": 1}
        note = Note(instance=case.instance, attempt=case.attempt, files=(file,))
        world.store.note([note], daemon=host.uuid)
        answer = ResponseData(content_type="text/plain", data=b"hello", size=5)
        host.record(*changes(case, Event.FINISH, response=answer))
        response = Response.objects.get(pk=case.instance)
        assert (response.value, response.files) == ("hello", [file])


def test_a_failure_keeps_its_reason_and_message(world):
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    details = {"reason": Reason.ERROR, "message": "Traceback …", "level": logging.ERROR}
    host.record(*changes(case, Event.FAIL, **details))
    assert world.get(case.instance).reason == Reason.ERROR
    last = world.log(case.instance)[-1]
    assert (last.message, last.level) == ("Traceback …", logging.ERROR)


def test_a_redrive_makes_the_budgets_new_and_keeps_the_fence(world):
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    host.move(case, Event.RETRY)
    for event in (Event.EXPIRE, Event.FAIL):
        [claimed] = host.claim()
        host.move(claimed, Event.START, event, reason=Reason.ERROR)
    before = world.get(case.instance)
    assert (before.retries, before.restarts, before.lost) == (1, 1, 1)
    assert world.as_anyone(Event.REDRIVE, case.instance) == []
    after = world.get(case.instance)
    assert (after.retries, after.restarts, after.lost, after.attempt) == (0, 0, 0, 3)
    assert (after.reason, after.finished) == ("", None)
    assert [c.attempt for c in host.claim()] == [4]


def test_many_instances_in_one_batch(world):
    host = world.host()
    world.enqueue(450)
    claimed = host.claim(450)
    batch = [c for one in claimed for c in changes(Case(one.instance, one.attempt), Event.START)]
    assert host.record(*batch) == []
    ends = [c for one in claimed for c in changes(Case(one.instance, one.attempt), Event.FINISH)]
    assert host.record(*ends) == []
    assert world.get(claimed[-1].instance).state == State.FINISHED


def test_a_detail_of_a_move_is_logged_with_it(world):
    """Alone, with its start, and in a batch with moves that have none."""
    host = world.host()
    world.enqueue(5)
    cases, now = host.claim(), world.store.now()
    ends = [
        Move(
            event=Event.RETRY if number % 2 else Event.FAIL,
            instance=case.instance,
            attempt=case.attempt,
            time=now,
            started=now,
            reason="" if number % 2 else Reason.ERROR,
            detail="" if number == 2 else f"shop.Error{number}",
        )
        for number, case in enumerate(cases)
    ]
    assert host.record(ends[0]) == []
    assert host.record(*ends[1:4]) == []
    assert host.record(*changes(cases[4], Event.START)) == []
    assert host.record(ends[4]._replace(started=None)) == []
    logs = [world.log(case.instance) for case in cases]
    assert [log[-1].detail for log in logs] == [end.detail for end in ends]
    assert {record.detail for log in logs for record in log[:-1]} == {""}

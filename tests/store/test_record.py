"""The store contract: record and note."""

import logging

from atp.models import Kind, LogRecord, Response
from atp.states import Event, Reason, State
from atp.store.values import Message, Move, ProgressUpdate, ResponseData

from .world import SECOND, file_of, move_of


def test_events_of_one_instance_are_applied_in_order_each_with_its_time(world, host):
    """G6: a short task may reach the database in one statement, with its true times."""
    case = world.bring_to(State.SCHEDULED, host)
    now = world.store.now()
    host.record(
        move_of(case, Event.START, time=now - 2 * SECOND),
        move_of(case, Event.FINISH, time=now - SECOND),
    )
    instance = world.get(case.instance)
    assert (instance.started, instance.finished) == (now - 2 * SECOND, now - SECOND)
    assert [(r.event, r.time) for r in world.log(case.instance)[2:]] == [
        (Event.START, now - 2 * SECOND),
        (Event.FINISH, now - SECOND),
    ]


def test_somebody_may_fail_and_redrive_in_one_batch(world):
    """G1: whatever the order, the Task row goes with the state."""
    [key] = world.enqueue()
    fail = Move(event=Event.FAIL, instance=key, reason=Reason.CANCELLED)
    redrive = Move(event=Event.REDRIVE, instance=key)
    for batch in ([fail, redrive], [fail, redrive, fail], [redrive, fail]):
        assert world.store.records.record(batch) == []
        is_failed = batch[-1] == fail
        assert world.state(key) == (State.FAILED if is_failed else State.ACCEPTED)
        assert (world.task(key) is None) == is_failed


def test_a_response_is_written_beside_published_files(world, host, case):
    for names in ("ab", "c"):
        files = tuple(file_of(f"atp/{name}", name) for name in names)
        assert world.store.records.note([note(case, files=files)], daemon=host.uuid) == []
    published = [file_of(f"atp/{name}", name) for name in "abc"]
    response = Response.objects.get(pk=case.instance)
    assert (response.value, response.files) == (None, published)
    answer = ResponseData(content_type="application/json", data=b'{"a":1}', size=7)
    host.move(case, Event.FINISH, response=answer)
    response = Response.objects.get(pk=case.instance)
    assert (response.value, response.size, response.files) == ({"a": 1}, 7, published)
    assert world.get(case.instance).progress == 1.0


def test_many_instances_change_in_one_batch(world, host):
    world.enqueue(450)
    claimed = host.claim(450)
    for event in (Event.START, Event.FINISH):
        assert host.record(*[move_of(case, event) for case in claimed]) == []
    assert world.get(claimed[-1].instance).state == State.FINISHED


def test_a_detail_of_a_move_is_logged_with_it(world, host):
    """Alone, with its start, and in a batch with moves that have none."""
    world.enqueue(5)
    cases, now = host.claim(), world.store.now()
    details = ["shop.Error0", "shop.Error1", "", "shop.Error3", "shop.Error4"]
    ends = [
        Move(Event.FAIL, case.instance, case.number, now, now, reason=Reason.ERROR, detail=detail)
        for case, detail in zip(cases, details, strict=True)
    ]
    ends[1] = ends[1]._replace(event=Event.RETRY, reason="")
    assert host.record(ends[0]) == []
    assert host.record(*ends[1:4]) == []
    host.move(cases[4], Event.START)
    assert host.record(ends[4]._replace(started=None)) == []
    logs = [world.log(case.instance) for case in cases]
    assert [log[-1].detail for log in logs] == details
    assert {record.detail for log in logs for record in log[:-1]} == {""}


def note(case, **said):
    return ProgressUpdate(instance=case.instance, attempt=case.number, who="worker", **said)


def test_the_first_and_the_last_messages_are_kept(world, settings):
    settings.ATP = {**settings.ATP, "MAX_LOG_RECORDS": 10}
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    now = world.store.now()

    def say(numbers, left_out):
        messages = tuple(Message(time=now, level=20, text=str(number)) for number in numbers)
        said = note(case, messages=messages, left_out=left_out)
        assert world.store.records.note([said], daemon=host.uuid) == []

    say(range(20), 10)
    say(range(20, 25), 15)
    found = LogRecord.objects.of_instance(case.instance).filter(who="worker")
    first, second, left_out, *newest = [record for record in found if not record.event]
    assert [first.message, second.message] == ["0", "1"]
    assert (left_out.kind, left_out.detail) == (Kind.LEFT_OUT, "15")
    assert [record.message for record in newest] == [str(number) for number in range(17, 25)]


def test_notes_set_progress_and_log_messages_and_a_refused_one_leaves_the_others(world):
    host, other = world.host(), world.host()
    case, theirs = world.bring_to(State.RUNNING, host), world.bring_to(State.RUNNING, other)
    now = world.store.now()
    messages = tuple(
        Message(time=now, level=level, text=f"at {level}")
        for level in (logging.INFO, logging.ERROR)
    )
    first, second = note(case, progress=0.25, progress_message="one"), note(case, progress=0.5)
    bad = note(theirs, progress=0.5, progress_message="x", messages=messages)
    said = [bad, first, second, bad, note(case, messages=messages)]
    assert world.store.records.note(said, daemon=host.uuid) == [bad, bad]
    instance = world.get(case.instance)
    assert (instance.progress, instance.progress_message) == (0.5, "one")
    assert world.get(theirs.instance).progress is None
    found = LogRecord.objects.filter(kind=Kind.MESSAGE)
    assert [(r.message, r.level, r.time) for r in found] == [("at 20", 20, now), ("at 40", 40, now)]
    facts = {(r.instance_id, r.state, r.attempt, r.who) for r in found}
    assert facts == {(case.instance, State.RUNNING, 1, "worker")}
    unknown = note(case, progress=None, progress_message="x")
    assert world.store.records.note([unknown], daemon=host.uuid) == []
    assert world.get(case.instance).progress is None

"""The store contract: note."""

import logging

from atp.models import LogRecord, Response
from atp.rows.log import Kind
from atp.states import State
from atp.store.values import Message, Note


def note(case, **said):
    return Note(instance=case.instance, attempt=case.attempt, who="worker", **said)


def file(name):
    return {"name": name, "path": f"atp/{name}", "content_type": "x/y", "size": 1, "attempt": 1}


def test_nothing_to_note(world):
    assert world.store.note([], daemon=world.host().uuid) == []


def test_progress(world):
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    said = [note(case, progress=0.25, progress_message="one"), note(case, progress=0.5)]
    assert world.store.note(said, daemon=host.uuid) == []
    instance = world.get(case.instance)
    assert (instance.progress, instance.progress_message) == (0.5, "one")


def test_messages_are_log_records_of_the_attempt(world):
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    now = world.store.now()
    messages = tuple(
        Message(time=now, level=level, text=f"at {level}")
        for level in (logging.INFO, logging.ERROR)
    )
    assert world.store.note([note(case, messages=messages)], daemon=host.uuid) == []
    found = LogRecord.objects.of_instance(case.instance).filter(kind=Kind.MESSAGE)
    assert [(r.message, r.level, r.time) for r in found] == [
        ("at 20", 20, now),
        ("at 40", 40, now),
    ]
    assert {(r.state, r.attempt, r.who) for r in found} == {(State.RUNNING, 1, "worker")}


def test_the_first_and_the_last_messages_are_kept(world, settings):
    settings.ATP = {**settings.ATP, "MAX_LOG_RECORDS": 10}
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    now = world.store.now()

    def say(numbers, left_out):
        messages = tuple(Message(time=now, level=20, text=str(number)) for number in numbers)
        said = note(case, messages=messages, left_out=left_out)
        assert world.store.note([said], daemon=host.uuid) == []

    say(range(20), 10)
    say(range(20, 25), 15)
    found = LogRecord.objects.of_instance(case.instance).filter(who="worker")
    first, second, left_out, *newest = [record for record in found if not record.event]
    assert [first.message, second.message] == ["0", "1"]
    assert (left_out.kind, left_out.detail) == (Kind.LEFT_OUT, "15")
    assert [record.message for record in newest] == [str(number) for number in range(17, 25)]


def test_what_others_have_said_is_not_left_out(world, settings):
    settings.ATP = {**settings.ATP, "MAX_LOG_RECORDS": 10}
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    messages = tuple(Message(time=world.store.now(), level=20, text=str(n)) for n in range(6))
    world.store.note([note(case, messages=messages)], daemon=host.uuid)
    world.store.request(case.instance, "pause", who="an operator")
    world.store.note([note(case, messages=messages * 2, left_out=8)], daemon=host.uuid)
    found = LogRecord.objects.of_instance(case.instance)
    assert found.filter(who="an operator").exists()
    assert found.filter(kind__in=Kind, who="worker").count() == 11


def test_who_does_not_hold_it_leaves_nothing_out(world, settings):
    settings.ATP = {**settings.ATP, "MAX_LOG_RECORDS": 10}
    host, other = world.host(), world.host()
    case = world.bring_to(State.RUNNING, host)
    messages = tuple(Message(time=world.store.now(), level=20, text=str(n)) for n in range(20))
    world.store.note([note(case, messages=messages)], daemon=host.uuid)
    late = note(case, left_out=10)
    assert world.store.note([late], daemon=other.uuid) == [late]
    assert LogRecord.objects.of_instance(case.instance).filter(who="worker").count() == 20


def test_files_are_added_to_the_response(world):
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    world.store.note([note(case, files=(file("a"), file("b")))], daemon=host.uuid)
    world.store.note([note(case, files=(file("c"),))], daemon=host.uuid)
    response = Response.objects.get(pk=case.instance)
    assert [f["name"] for f in response.files] == ["a", "b", "c"]
    assert response.value is None


def test_a_refused_note_leaves_the_others_of_its_batch(world):
    host, other = world.host(), world.host()
    mine, theirs = world.bring_to(State.RUNNING, host), world.bring_to(State.RUNNING, other)
    good, bad = (note(c, progress=0.5, progress_message="x") for c in (mine, theirs))
    assert world.store.note([bad, good, bad], daemon=host.uuid) == [bad, bad]
    assert world.get(mine.instance).progress == 0.5
    assert world.get(theirs.instance).progress is None


def test_progress_may_become_unknown(world):
    host = world.host()
    case = world.bring_to(State.RUNNING, host)
    for progress in (0.5, None):
        said = note(case, progress=progress, progress_message="x")
        world.store.note([said], daemon=host.uuid)
        assert world.get(case.instance).progress == progress

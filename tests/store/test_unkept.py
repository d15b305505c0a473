"""The store contract: what FINISHED of a Type that keeps nothing goes with its end (G12)."""

from datetime import timedelta

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from atp.conf import settings
from atp.exceptions import TaskGone
from atp.models import Inputs, Instance, LogRecord, Response, Task
from atp.states import Event, Reason, State
from atp.store.values import Message, Move, Note, ResponseData

from .world import ONE, registration

NOTHING = registration(ONE, retention=timedelta(0))
ANSWER = ResponseData(content_type="text/plain", data=b"done", file="", size=4)


@pytest.fixture
def host(world):
    return world.host()


@pytest.fixture
def running(world, host):
    """Return a function that makes an Instance which runs."""
    return lambda: world.bring_to(State.RUNNING, host, type=NOTHING)


def finish(case, **details):
    return Move(
        event=Event.FINISH, instance=case.instance, attempt=case.attempt, kept=False, **details
    )


def is_left(key):
    return [
        model.__name__
        for model in (Instance, Task, Inputs, Response, LogRecord)
        if model.objects.filter(**{"pk" if model is Instance else "instance": key}).exists()
    ]


@pytest.mark.parametrize("answer", [None, ANSWER])
def test_it_is_removed_with_its_end(world, host, running, answer):
    """G12: with its inputs, its log and its Response."""
    case = running()
    message = Message(time=world.store.now(), level=20, text="hello")
    note = Note(instance=case.instance, attempt=case.attempt, messages=(message,))
    assert world.store.note([note], daemon=host.uuid) == []
    assert host.record(finish(case, time=world.store.now(), response=answer)) == []
    assert is_left(case.instance) == []


def test_its_start_and_its_end_in_one(world, host):
    world.enqueue(3, type=NOTHING)
    now = world.store.now()
    claimed = host.claim()
    assert host.record(*[finish(case, time=now, started=now) for case in claimed]) == []
    assert [is_left(case.instance) for case in claimed] == [[]] * 3


def test_its_start_and_its_end_one_after_the_other(world, host):
    world.enqueue(type=NOTHING)
    [case] = host.claim()
    start = Move(event=Event.START, instance=case.instance, attempt=case.attempt)
    assert host.record(start, finish(case)) == []
    assert is_left(case.instance) == []


def test_beside_others_that_are_kept(world, host, running):
    kept, case = world.bring_to(State.RUNNING, host), running()
    end = finish(kept, time=world.store.now())._replace(kept=True)
    assert host.record(end, finish(case, time=world.store.now())) == []
    assert is_left(case.instance) == []
    assert world.state(kept.instance) == State.FINISHED


def test_it_is_fenced(world, host, running):
    """G3: nobody but the holder removes it so, and under this attempt."""
    case = running()
    late = finish(case, time=world.store.now())._replace(attempt=case.attempt + 1)
    assert host.record(late) == [late]
    assert world.state(case.instance) == State.RUNNING


def test_a_refused_end_leaves_the_others_alone(world, host, running):
    case, other = running(), running()
    now = world.store.now()
    late = finish(other, time=now)._replace(attempt=other.attempt + 1)
    assert host.record(finish(case, time=now), late) == [late]
    assert is_left(case.instance) == []
    assert world.state(other.instance) == State.RUNNING


def test_told_again_it_is_refused_and_nothing_comes_back(world, host, running):
    """G4: the acknowledgement got lost."""
    case = running()
    end = finish(case, time=world.store.now())
    assert host.record(end) == []
    assert host.record(end) == [end]
    assert is_left(case.instance) == []


def test_what_failed_is_kept(world, host, running):
    """G12: an operator sees it, for as long as the setting says."""
    case = running()
    host.move(case, Event.FAIL, reason=Reason.ERROR, kept=False)
    assert world.store.purge() == 0
    assert world.state(case.instance) == State.FAILED


def test_a_worker_that_concludes_removes_it(world, running):
    """G7, G12: in the transaction of its handler."""
    case = running()
    world.store.conclude(finish(case, response=ANSWER))
    assert is_left(case.instance) == []
    with pytest.raises(TaskGone):
        world.store.conclude(finish(case))


class TestFiles:
    @pytest.fixture
    def case(self, world, host, running, media):
        case = running()
        path = default_storage.save(f"atp/{world.get(case.instance).uuid}/1-a", ContentFile(b"x"))
        file = {"name": "a", "path": path, "content_type": "x/y", "size": 1, "attempt": 1}
        note = Note(instance=case.instance, attempt=case.attempt, files=(file,))
        assert world.store.note([note], daemon=host.uuid) == []
        return case

    @pytest.mark.parametrize("concludes", [False, True])
    def test_they_go_with_it_at_the_next_purge(self, world, host, case, media, concludes):
        """G12: files go first, but not before it is committed that it FINISHED."""
        end = finish(case, time=world.store.now())
        if concludes:
            world.store.conclude(end)
        else:
            assert host.record(end) == []
        assert world.state(case.instance) == State.FINISHED
        assert world.events(case.instance)[-2:] == [Event.START, Event.FINISH]
        assert world.store.purge() == 1
        assert is_left(case.instance) == []
        assert [path for path in media.rglob("*") if path.is_file()] == []


class TestFailures:
    @pytest.fixture
    def failed(self, world, host):
        """Return a function that makes an Instance which failed some time ago."""

        def make(ago):
            [key] = world.enqueue(type=NOTHING)
            time = world.store.now() - ago
            assert world.as_anyone(Event.FAIL, key, reason=Reason.CANCELLED, time=time) == []
            return key

        return make

    @pytest.mark.parametrize(
        ("setting", "stay"),
        [(timedelta(days=3), 1), (None, 3), (timedelta(0), 2), (0, 2)],
    )
    def test_they_stay_as_long_as_the_setting_says(self, world, failed, monkeypatch, setting, stay):
        """G12: for the default of the setting where that keeps nothing either."""
        monkeypatch.setattr(settings, "RETENTION", setting, raising=False)
        for days in (1, 4, 31):
            failed(timedelta(days=days))
        assert world.store.purge() == 3 - stay
        assert Instance.objects.count() == stay

"""The store contract: purge (RFC 14's retention), and Types that keep nothing (G12)."""

from datetime import timedelta

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db.models.signals import post_delete

from atp.conf import settings
from atp.exceptions import TaskGone
from atp.models import Inputs, Instance, LogRecord, Response, Task
from atp.states import LIVE, Event, Reason, State
from atp.store.values import Message, ProgressUpdate, ResponseData

from ..helpers import open_transaction
from .broken import execute
from .internals import Marks
from .world import DAY, ONE, THREE, TWO, Case, file_of, move_of, needs_row_locks, registration

# Longer ago than this is everything that has ended.
MOMENT = timedelta(microseconds=1)


def kept(identifier, retention):
    return registration(identifier, retention=retention)


def publish(world, host, case, names="a"):
    """Store files that an attempt publishes, and note them; returns their paths."""
    folder = f"atp/{world.get(case.instance).uuid}"
    paths = [default_storage.save(f"{folder}/1-{name}", ContentFile(b"x")) for name in names]
    note(world, host, case, files=tuple(file_of(path) for path in paths))
    return paths


def note(world, host, case, **said):
    update = ProgressUpdate(instance=case.instance, attempt=case.number, **said)
    assert world.store.records.note([update], daemon=host.uuid) == []


@pytest.fixture
def ended(world):
    """Return a function that makes a terminal Instance which ended some time ago."""

    def make(of, ago):
        [key] = world.enqueue(type=of)
        time = world.store.now() - ago
        assert world.as_anyone(Event.FAIL, key, reason=Reason.CANCELLED, time=time) == []
        return key

    return make


def files_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def left():
    return set(Instance.objects.values_list("pk", flat=True))


def test_only_what_ended_longer_ago_than_its_type_keeps_it(world, ended):
    """G12: each by the retention of its own Type; without one it is kept for ever."""
    day, hour, ever = kept(ONE, DAY), kept(TWO, DAY / 24), kept(THREE, None)
    stays = {ended(day, DAY / 2), ended(hour, DAY / 48), ended(ever, 9999 * DAY)}
    old = ended(day, 1.1 * DAY)
    ended(hour, DAY / 2)
    assert world.store.removal.purge(type="unknown") == 0
    assert world.store.removal.purge(type=TWO) == 1
    assert left() == {*stays, old}
    assert world.store.removal.purge() == 1
    assert left() == stays
    assert world.store.removal.purge() == 0


def test_a_live_instance_is_never_removed_and_an_ended_one_with_all_its_rows(world, host):
    """G12, and G1."""
    states = sorted(State, key=lambda state: state == State.ACCEPTED)
    of = kept(ONE, MOMENT)
    keys = {state: world.bring_to(state, host, type=of).instance for state in states}
    live = {key for state, key in keys.items() if state in LIVE}
    assert world.store.removal.purge(instances=[*live, 2**40]) == 0
    assert world.store.removal.purge() == 2
    assert left() == live == set(Inputs.objects.values_list("pk", flat=True))
    logged = LogRecord.objects.filter(instance__isnull=False)
    assert set(logged.values_list("instance", flat=True)) == live


def test_in_bounded_chunks_the_oldest_first(world, ended):
    """G12."""
    keys = [ended(kept(ONE, DAY), (2 + n) * DAY) for n in range(5)]
    assert world.store.removal.purge(limit=2) == 2
    assert left() == set(keys[:3])
    ended(kept(TWO, DAY), 2 * DAY)
    assert world.store.removal.purge(limit=3) == 3
    assert world.store.removal.purge(limit=3) == 1
    assert world.store.removal.purge(limit=0) == 0


class TestFiles:
    @pytest.fixture
    def case(self, world, media):
        host = world.host()
        case = world.bring_to(State.RUNNING, host, type=kept(ONE, MOMENT))
        first, _ = publish(world, host, case, "ab")
        answered = default_storage.save(first, ContentFile(b"x"))
        answer = ResponseData(content_type="text/plain", data=None, file=answered, size=1)
        host.move(case, Event.FINISH, response=answer)
        return case

    def test_they_are_removed_with_the_rows(self, world, case, media):
        assert len(files_in(media)) == 3
        assert world.store.removal.purge() == 1
        assert files_in(media) == []
        assert not Response.objects.exists()
        assert list((media / "atp").iterdir()) == []

    @pytest.mark.parametrize("error", [RuntimeError, PermissionError])
    def test_what_cannot_be_removed_keeps_its_row_and_it_goes_on_behind_that(
        self, world, case, ended, error, monkeypatch, caplog
    ):
        """G12: nothing is forgotten that still lies somewhere, and nothing else is kept."""

        def refuse(self, name):
            raise error(name)  # some storages have errors of their own

        monkeypatch.setattr(type(default_storage._wrapped or default_storage), "delete", refuse)
        Instance.objects.update(finished=world.store.now() - 9 * DAY)
        stuck, gone = (ended(kept(ONE, DAY), days * DAY) for days in (3, 2))
        Response.objects.create(instance_id=stuck, file="another", size=1)
        marks, removed = Marks(), []
        for _ in range(3):
            removed.append((world.store.removal.purge(limit=2, marks=marks), marks.passes_kept))
        assert removed == [(0, True), (1, True), (0, False)]
        assert left() == {case.instance, stuck}
        assert not Instance.objects.filter(pk=gone).exists()
        assert "Instances cannot be removed" in caplog.text
        assert world.store.removal.purge(limit=2) == 0


@pytest.mark.django_db(transaction=True)
@needs_row_locks
@pytest.mark.parametrize(
    ("lock", "by_key"),
    [
        ("SELECT FROM atp_instance WHERE id = %s FOR UPDATE", False),
        ("SELECT FROM atp_inputs WHERE instance_id = %s FOR UPDATE", True),
        ("SELECT FROM atp_logrecord WHERE instance_id = %s LIMIT 1 FOR UPDATE", False),
    ],
)
def test_what_somebody_else_has_locked_is_left_and_waited_for_by_nobody(world, ended, lock, by_key):
    """G12, G11: all others go at once."""
    keys = [ended(kept(ONE, DAY), (2 + n) * DAY) for n in range(5)]
    chosen = {"instances": keys} if by_key else {}
    with open_transaction(lambda: execute(lock, keys[2])):
        execute("SET statement_timeout = '10s'")  # to wait would be an error
        assert world.store.removal.purge(**chosen) == 4
        execute("RESET statement_timeout")
        assert left() == {keys[2]}
    assert world.store.removal.purge(**chosen) == 1


def test_marks_say_how_far_it_has_come(world, ended):
    """What comes later than what is newer is found with new ones."""
    marks = Marks()
    ended(kept(ONE, DAY), 2 * DAY)
    assert world.store.removal.purge(marks=marks) == 1
    ended(kept(ONE, DAY), 1.5 * DAY)
    assert world.store.removal.purge(marks=marks) == 1
    ended(kept(ONE, DAY), 9 * DAY)
    world.store.removal.purge(marks=marks)
    world.store.removal.purge(marks=Marks())
    assert left() == set()


def test_who_follows_an_instance_is_told(world, ended):
    """An application's signals are sent, as they are by Django."""
    told = []
    key = ended(kept(ONE, DAY), 2 * DAY)

    def listen(instance, **_):
        told.append(instance.pk)

    post_delete.connect(listen, sender=Instance)
    try:
        assert world.store.removal.purge() == 1
    finally:
        post_delete.disconnect(listen, sender=Instance)
    assert told == [key]


# What FINISHED of a Type that keeps nothing goes with its end


NOTHING = registration(ONE, retention=timedelta(0))
ANSWER = ResponseData(content_type="text/plain", data=b"done", file="", size=4)


@pytest.fixture
def running(world, host):
    """Return a function that makes an Instance which runs."""
    return lambda: world.bring_to(State.RUNNING, host, type=NOTHING)


def ending(case, **details):
    return move_of(case, Event.FINISH, kept=False, **details)


def is_left(key):
    return [
        model.__name__
        for model in (Instance, Task, Inputs, Response, LogRecord)
        if model.objects.filter(**{"pk" if model is Instance else "instance": key}).exists()
    ]


def test_it_is_removed_with_its_end_whoever_records_that(world, host, running):
    """G7, G12: with its inputs, log and Response, also in the transaction of its handler."""
    case, other = running(), running()
    message = Message(time=world.store.now(), level=20, text="hello")
    note(world, host, case, messages=(message,))
    assert host.record(ending(case, time=world.store.now(), response=ANSWER)) == []
    assert is_left(case.instance) == []
    world.store.records.conclude(ending(other, response=ANSWER))
    assert is_left(other.instance) == []
    with pytest.raises(TaskGone):
        world.store.records.conclude(ending(other))


def test_a_refused_end_leaves_the_others_alone(world, host, running):
    """G3: nobody but the holder removes it so, and under this attempt; what is kept stays.

    What FAILED is kept: an operator sees it, for as long as the setting says.
    """
    case, other, kept = running(), running(), world.bring_to(State.RUNNING, host)
    [both] = world.enqueue(type=NOTHING)
    host.claim()
    now = world.store.now()
    late = ending(other, time=now)._replace(attempt=other.number + 1)
    end = ending(kept, time=now)._replace(kept=True)
    started = ending(Case(both, 1), time=now, started=now)
    assert host.record(ending(case, time=now), late, end, started) == [late]
    assert world.state(kept.instance) == State.FINISHED
    assert is_left(case.instance) == is_left(both) == []
    assert world.state(other.instance) == State.RUNNING
    host.move(other, Event.FAIL, reason=Reason.ERROR, kept=False)
    assert world.store.removal.purge() == 1
    assert (is_left(kept.instance), world.state(other.instance)) == ([], State.FAILED)


def test_files_go_with_it_at_the_next_purge(world, host, running, media):
    """G12: files go first, but not before it is committed that it FINISHED."""
    case = running()
    publish(world, host, case)
    assert host.record(ending(case, time=world.store.now())) == []
    assert world.state(case.instance) == State.FINISHED
    assert world.events(case.instance)[-2:] == [Event.START, Event.FINISH]
    assert world.store.removal.purge() == 1
    assert is_left(case.instance) == []
    assert files_in(media) == []


@pytest.mark.parametrize(("setting", "stay"), [(timedelta(days=3), 1), (None, 3), (0, 2)])
def test_failures_stay_as_long_as_the_setting_says(world, ended, monkeypatch, setting, stay):
    """G12: for the default of the setting where that keeps nothing either."""
    monkeypatch.setattr(settings, "RETENTION", setting, raising=False)
    for days in (1, 4, 31):
        ended(NOTHING, days * DAY)
    assert world.store.removal.purge() == 3 - stay
    assert Instance.objects.count() == stay

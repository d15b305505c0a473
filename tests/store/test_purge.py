"""The store contract: purge (RFC 14's retention, G12)."""

import contextlib
from datetime import timedelta

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import connection
from django.db.models.signals import post_delete

from atp.models import Inputs, Instance, LogRecord, Response
from atp.states import LIVE, TERMINAL, Event, Reason, State
from atp.store.findings import Marks
from atp.store.values import Move, Note, ResponseData

from .world import ONE, THREE, TWO, registration

DAY = timedelta(days=1)
# Longer ago than this is everything that has ended.
MOMENT = timedelta(microseconds=1)


def kept(identifier, retention):
    return registration(identifier, retention=retention)


@pytest.fixture
def ended(world):
    """Return a function that makes a terminal Instance which ended some time ago."""

    def make(of, ago):
        [key] = world.enqueue(type=of)
        time = world.store.now() - ago
        assert world.as_anyone(Event.FAIL, key, reason=Reason.CANCELLED, time=time) == []
        return key

    return make


def left():
    return set(Instance.objects.values_list("pk", flat=True))


def test_only_what_ended_longer_ago_than_its_type_keeps_it(world, ended):
    """G12: each by the retention of its own Type; without one it is kept for ever."""
    day, hour, ever = kept(ONE, DAY), kept(TWO, DAY / 24), kept(THREE, None)
    stays = {ended(day, DAY / 2), ended(hour, DAY / 48), ended(ever, 9999 * DAY)}
    gone = {ended(day, 1.1 * DAY), ended(hour, DAY / 2)}
    assert world.store.purge() == len(gone)
    assert left() == stays
    assert world.store.purge() == 0


@pytest.mark.parametrize("state", sorted(LIVE))
def test_a_live_instance_is_never_removed(world, state):
    """G12, and G1."""
    host = world.host()
    case = world.bring_to(state, host, type=kept(ONE, MOMENT))
    assert world.store.purge() == 0
    assert world.store.purge(instances=[case.instance]) == 0
    assert left() == {case.instance}


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_a_terminal_instance_goes_with_all_that_belongs_to_it(world, state):
    host = world.host()
    case = world.bring_to(state, host, type=kept(ONE, MOMENT))
    other = world.enqueue(type=TWO)
    assert world.store.purge() == 1
    assert left() == set(other)
    assert set(Inputs.objects.values_list("pk", flat=True)) == set(other)
    assert not LogRecord.objects.filter(instance=case.instance).exists()


def test_what_was_redriven_is_live_and_stays(world, ended):
    """G12."""
    key = ended(kept(ONE, DAY), 2 * DAY)
    assert world.as_anyone(Event.REDRIVE, key) == []
    assert world.store.purge() == 0
    assert left() == {key}


def test_records_about_types_and_daemons_are_kept(world, ended):
    world.host()
    ended(kept(ONE, DAY), 2 * DAY)
    before = LogRecord.objects.filter(instance=None).count()
    assert world.store.purge() == 1
    assert LogRecord.objects.filter(instance=None).count() == before > 0


def test_of_one_type_only(world, ended):
    one, two = ended(kept(ONE, DAY), 2 * DAY), ended(kept(TWO, DAY), 2 * DAY)
    assert world.store.purge(type=TWO) == 1
    assert left() == {one}
    assert two not in left()
    assert world.store.purge(type="unknown") == 0


def test_in_bounded_chunks_the_oldest_first(world, ended):
    """G12."""
    keys = [ended(kept(ONE, DAY), (2 + n) * DAY) for n in range(5)]
    assert world.store.purge(limit=2) == 2
    assert left() == set(keys[:3])
    ended(kept(TWO, DAY), 2 * DAY)
    assert world.store.purge(limit=3) == 3
    assert world.store.purge(limit=3) == 1
    assert world.store.purge(limit=0) == 0


def test_those_given_by_key_whatever_their_retention(world, ended):
    keys = [ended(kept(ONE, None), timedelta(0)) for _ in range(3)]
    assert world.store.purge(instances=keys[:2]) == 2
    assert left() == {keys[2]}
    assert world.store.purge(instances=[]) == 0
    assert world.store.purge(instances=[2**40]) == 0


class TestFiles:
    @pytest.fixture
    def case(self, world, media):
        host = world.host()
        case = world.bring_to(State.RUNNING, host, type=kept(ONE, MOMENT))
        folder = f"atp/{world.get(case.instance).uuid}"
        paths = [default_storage.save(f"{folder}/1-{name}", ContentFile(b"x")) for name in "abc"]
        files = tuple(
            {"name": "n", "path": path, "content_type": "x/y", "size": 1, "attempt": 1}
            for path in paths[:2]
        )
        note = Note(instance=case.instance, attempt=case.attempt, files=files)
        assert world.store.note([note], daemon=host.uuid) == []
        answer = ResponseData(content_type="text/plain", data=None, file=paths[2], size=1)
        finish = Move(
            event=Event.FINISH, instance=case.instance, attempt=case.attempt, response=answer
        )
        assert host.record(finish) == []
        return case

    def test_they_are_removed_with_the_rows(self, world, case, media):
        stored = list(media.rglob("*"))
        assert len([path for path in stored if path.is_file()]) == 3
        assert world.store.purge() == 1
        assert [path for path in media.rglob("*") if path.is_file()] == []
        assert not Response.objects.exists()
        assert list((media / "atp").iterdir()) == []

    def test_one_that_is_gone_already_is_no_obstacle(self, world, case, media):
        next(path for path in media.rglob("*") if path.is_file()).unlink()
        assert world.store.purge() == 1

    @pytest.fixture
    def refusing(self, monkeypatch):
        """Let the storage raise an error; some have errors of their own."""

        def refusing(error):
            def refuse(self, name):
                raise error(name)

            storage = type(default_storage._wrapped or default_storage)
            monkeypatch.setattr(storage, "delete", refuse)

        return refusing

    @pytest.mark.parametrize("error", [PermissionError, RuntimeError])
    def test_what_cannot_be_removed_keeps_its_row(
        self, world, case, ended, refusing, error, caplog
    ):
        """G12: nothing is forgotten that still lies somewhere, and nothing else is kept."""
        ended(kept(TWO, DAY), 2 * DAY)
        refusing(error)
        assert world.store.purge() == 1
        assert left() == {case.instance}
        assert "files of 1 Instances cannot be removed" in caplog.text

    def test_behind_what_cannot_be_removed_it_goes_on(self, world, case, ended, refusing):
        Instance.objects.update(finished=world.store.now() - 9 * DAY)
        stuck, gone = (ended(kept(ONE, DAY), days * DAY) for days in (3, 2))
        Response.objects.create(instance_id=stuck, file="another", size=1)
        refusing(PermissionError)
        marks = Marks()
        assert (world.store.purge(limit=2, marks=marks), marks.passes_kept) == (0, True)
        assert (world.store.purge(limit=2, marks=marks), marks.passes_kept) == (1, True)
        assert (world.store.purge(limit=2, marks=marks), marks.passes_kept) == (0, False)
        assert left() == {case.instance, stuck}
        assert not Instance.objects.filter(pk=gone).exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="SQLite locks no rows")
class TestLocks:
    """G12, G11: what somebody else has locked is left, and waited for by nobody."""

    @pytest.fixture
    def elsewhere(self):
        """Another session, in a transaction that stays open."""
        other = connection.copy()
        other.set_autocommit(False)
        with contextlib.closing(other):
            yield other.cursor()

    @pytest.mark.parametrize(
        "lock",
        [
            "SELECT FROM atp_instance WHERE id = %s FOR UPDATE",
            "SELECT FROM atp_inputs WHERE instance_id = %s FOR UPDATE",
            "SELECT FROM atp_logrecord WHERE instance_id = %s LIMIT 1 FOR UPDATE",
            "UPDATE atp_logrecord SET message = 'x' WHERE instance_id = %s",
        ],
    )
    @pytest.mark.parametrize("by_key", [False, True])
    def test_all_others_go_at_once(self, world, ended, elsewhere, lock, by_key):
        keys = [ended(kept(ONE, DAY), (2 + n) * DAY) for n in range(5)]
        elsewhere.execute(lock, [keys[2]])
        chosen = {"instances": keys} if by_key else {}
        with connection.cursor() as cursor:  # to wait would be an error
            cursor.execute("SET statement_timeout = '10s'")
            assert world.store.purge(**chosen) == 4
            cursor.execute("RESET statement_timeout")
        assert left() == {keys[2]}
        elsewhere.connection.rollback()
        assert world.store.purge(**chosen) == 1

    def test_the_marks_go_past_it(self, world, ended, elsewhere):
        keys = [ended(kept(ONE, DAY), (9 - n) * DAY) for n in range(5)]
        elsewhere.execute("SELECT FROM atp_instance WHERE id = %s FOR UPDATE", [keys[0]])
        marks = Marks()
        removed = [world.store.purge(limit=2, marks=marks) for _ in range(3)]
        assert removed == [2, 2, 0]
        assert left() == {keys[0]}


def test_marks_say_how_far_it_has_come(world, ended):
    """What comes later than what is newer is found with new ones."""
    marks = Marks()
    ended(kept(ONE, DAY), 2 * DAY)
    assert world.store.purge(marks=marks) == 1
    ended(kept(ONE, DAY), 1.5 * DAY)
    assert world.store.purge(marks=marks) == 1
    ended(kept(ONE, DAY), 9 * DAY)
    world.store.purge(marks=marks)
    world.store.purge(marks=Marks())
    assert left() == set()


def test_who_follows_an_instance_is_told(world, ended):
    """An application's signals are sent, as they are by Django."""
    told = []

    def listen(instance, **_):
        told.append(instance.pk)

    post_delete.connect(listen, sender=Instance)
    try:
        key = ended(kept(ONE, DAY), 2 * DAY)
        assert world.store.purge() == 1
    finally:
        post_delete.disconnect(listen, sender=Instance)
    assert told == [key]


def test_two_purges_share_what_there_is(world, ended):
    keys = [ended(kept(ONE, DAY), (2 + n) * DAY) for n in range(6)]
    assert [world.store.purge(limit=4), world.store.purge(limit=4)] == [4, 2]
    assert not left() & set(keys)

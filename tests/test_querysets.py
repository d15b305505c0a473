"""Tests of :mod:`atp.rows.querysets`."""

import itertools
from datetime import timedelta

import pytest

from atp.models import Daemon, Instance, LogRecord, Task, Type
from atp.states import DEAD_LETTER, LIVE, TERMINAL, Reason, State
from atp.store import get_store

from .app.tasks import add, echo

pytestmark = pytest.mark.django_db


def now():
    return get_store().now()


def instance(**values):
    """Return an Instance that is not saved, as the store would write it."""
    of = Type.objects.get(identifier="tests.echo")
    return Instance(**{"type": of, "state": State.ACCEPTED, "created": now()} | values)


@pytest.fixture
def by_state():
    made = {}
    for state in State:
        values = {"finished": now()} if state in TERMINAL else {}
        if state == State.FAILED:
            values["reason"] = Reason.CANCELLED
        made[state] = instance(state=state, **values)
        made[state].save()
    return made


def test_by_state(by_state):
    everything = Instance.objects.all()
    assert {i.state for i in everything.live()} == LIVE
    assert {i.state for i in everything.terminal()} == TERMINAL
    assert {i.state for i in everything.claimed()} == LIVE - {State.ACCEPTED}
    assert {i.state for i in everything.finished()} == {State.FINISHED}
    assert everything.in_state(State.PAUSED, State.RUNNING).count() == 2


def test_by_reason():
    for reason in Reason:
        instance(state=State.FAILED, finished=now(), reason=reason).save()
    failed = Instance.objects.failed()
    assert failed.count() == len(Reason)
    assert failed.failed(Reason.ERROR, Reason.MISSED).count() == 2
    assert {i.reason for i in Instance.objects.dead_letter()} == DEAD_LETTER


def test_by_type_newest_first():
    one, other, two = echo.enqueue(), add.enqueue(1), echo.enqueue()
    found = Instance.objects.of_type("tests.echo").newest_first()
    assert list(found) == [two, one]
    assert other not in found


def test_tasks():
    later = now() + timedelta(hours=1)
    due, future = echo.enqueue(), echo.using(run_after=later).enqueue()
    assert [t.pk for t in Task.objects.due(now())] == [due.pk]
    assert Task.objects.waiting().count() == 2
    assert Task.objects.claimed().count() == 0
    urgent = echo.using(priority=1).enqueue()
    ordered = [t.pk for t in Task.objects.in_claiming_order()]
    assert ordered == [urgent.pk, due.pk, future.pk]


def test_daemons_with_a_lease():
    def daemon(number, until, lock=""):
        return Daemon.objects.create(
            uuid=f"{number:032x}",
            host="h",
            pid=number,
            version="1",
            lock=lock,
            lease_until=until,
            started=now(),
            seen=now(),
        )

    over, good = now() - timedelta(seconds=1), now() + timedelta(minutes=1)
    daemon(1, over)
    leased = [daemon(2, good), daemon(3, over, "a file")]
    assert set(Daemon.objects.leased(now())) == set(leased)


def test_instances_by_the_start_of_their_uuid():
    one, other = echo.enqueue(), echo.enqueue()
    for prefix in (str(one.uuid), one.uuid.hex, str(one.uuid)[:30]):
        assert list(Instance.objects.named(prefix).order_by("pk"))[:1] == [one]
    assert list(Instance.objects.named(str(other.uuid))) == [other]


KINDS = [*((state, "") for state in State if state != State.FAILED)]
KINDS += [(State.FAILED, reason) for reason in Reason]
COLLECTIONS = ["", "books", "maps"]


@pytest.fixture
def everything():
    """Each state and reason, of two Types and in each collection, as the store would have it."""
    daemon = Daemon.objects.create(
        uuid="0" * 32, host="h", pid=1, version="1", lease_until=now(), started=now(), seen=now()
    )
    types = list(Type.objects.filter(identifier__in=["tests.add", "tests.echo"]))
    kinds = itertools.product(types, KINDS, COLLECTIONS)
    for number, (type, (state, reason), collection) in enumerate(kinds):
        made = instance(
            type=type,
            state=state,
            reason=reason,
            collection=collection,
            finished=now() if state in TERMINAL else None,
            identifier=f"number {number % 40}" if number % 3 else None,
            created_by="somebody" if number % 2 else "",
        )
        made.save()
        if state in LIVE:
            holder = None if state == State.ACCEPTED else daemon
            of = {"type": type, "collection": collection, "daemon": holder, "due_at": now()}
            Task.objects.create(instance=made, **of)
    return list(Instance.objects.newest_first())


def choices(name):
    """Values to select by, some of which nothing has."""
    return {
        "type": [None, *Type.objects.filter(identifier__startswith="tests.")[:4]],
        "state": [None, "", *State],
        "reason": ["", *Reason],
        "collection": ["", "books", "absent"],
        "identifier": ["", "number 1", "number 5", "absent"],
        "created_by": ["", "somebody", "absent"],
    }[name]


@pytest.mark.parametrize(
    "names",
    [
        ("type", "state", "reason"),
        ("type", "state", "collection"),
        ("reason", "collection"),
        ("type", "reason", "collection"),
        ("type", "identifier", "state"),
        ("identifier", "collection", "created_by"),
        ("identifier", "reason"),
        ("created_by", "state"),
    ],
    ids=" ".join,
)
def test_selected_says_the_same_as_plain_conditions(everything, names):
    found = 0
    for values in itertools.product(*(choices(name) for name in names)):
        given = dict(zip(names, values, strict=True))
        expected = [
            row
            for row in everything
            if all(getattr(row, name) == value for name, value in given.items() if value)
        ]
        assert list(Instance.objects.selected(**given).newest_first()) == expected, given
        found += len(expected)
    assert found


def test_selected_chains_with_other_selections(everything):
    rows = Instance.objects.select_related("type").named(str(everything[0].uuid))
    assert list(rows.selected(state=everything[0].state)) == [everything[0]]
    assert list(rows.selected(state=State.RUNNING, reason=Reason.ERROR)) == []
    wanted = Instance.objects.selected(state=State.RUNNING)
    assert wanted.count() == wanted.selected(state=State.RUNNING).count() == 6


@pytest.mark.parametrize("state", [*State, *map(str, State)])
def test_selected_takes_a_state_by_its_value_too(everything, state):
    assert Instance.objects.selected(state=state).exists()


def test_records_about_a_type_and_its_lanes(db):
    """Of no other, whose name is alike but for case or for what a pattern means."""
    for subject in (
        "type:a_b",
        "lane:a_b/",
        "lane:a_b/x/y",
        "type:A_b",
        "lane:A_b/x",
        "lane:axb/x",
    ):
        LogRecord.objects.create(subject=subject, time=get_store().now(), level=20)
    found = LogRecord.objects.about_type("a_b").values_list("subject", flat=True)
    assert list(found) == ["type:a_b", "lane:a_b/", "lane:a_b/x/y"]

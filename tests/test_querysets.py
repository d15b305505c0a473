"""Tests of :mod:`atp.querysets`."""

from datetime import timedelta

import pytest

from atp.models import Daemon, Instance, Task, Type
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


def test_queued_are_those_with_a_task():
    one = echo.enqueue()
    instance(state=State.FINISHED, finished=now()).save()
    assert list(Instance.objects.queued()) == [one]

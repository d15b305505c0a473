"""What operators are told of inputs that fit no daemon, and of the releases that run."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from atp import queue, text
from atp.commands import Mode
from atp.models import Daemon, incompatible_detail
from atp.reports import health, overview, releases
from atp.reports.explaining.explain import explain
from atp.states import Event

from ..nonsense import tells
from .conftest import SHADE

MESSAGE = "release new does not take its inputs: there is no argument 'path'"


def member(world, release, signature):
    """A daemon of a release, with this signature of SHADE; ``signature`` is it."""
    host = world.host(SHADE, name=release)
    Daemon.objects.filter(uuid=host.uuid).update(release=release, signatures={SHADE: signature})
    host.signature = signature
    return host


@pytest.fixture
def old(world):
    return member(world, "old", "aaaa0000")


@pytest.fixture
def new(world):
    return member(world, "new", "bbbb1111")


def refuse(host, *instances):
    """Have a daemon claim what is due and refuse these inputs, as its row tells afterwards."""
    for case in host.claim():
        details = {"message": MESSAGE, "detail": incompatible_detail(host.signature)}
        host.move(case, Event.DEFER, started=host.world.store.now(), **details)
    tell(host, *instances)


def tell(host, *instances):
    keys = {SHADE: [each.pk for each in instances]}
    host.world.store.renew(host.uuid, lease=600, misfits=keys)


def problems():
    return [each for each in health.problems(overview.daemons(), overview.now()) if "fit" in each]


def explained(instance):
    return queue.explain(queue.get(instance.uuid))


def why(instance):
    return " ".join(reason.sentence for reason in explained(instance).reasons)


def test_a_renewal_writes_what_does_not_fit(shade, new):
    """It stands in the daemon's row, and with the next renewal as it is then."""
    waits = shade.enqueue(path="a")
    tell(new, waits)
    assert new.row.misfits == {SHADE: [waits.pk]}
    new.world.store.renew(new.uuid, lease=600)
    assert new.row.misfits == {}


def test_what_fits_no_daemon_is_a_problem(shade, new, world):
    """Two daemons of one signature count as one."""
    other = member(world, "new", new.signature)
    waits = [shade.enqueue(path=name) for name in "abc"]
    assert problems() == []
    refuse(new, *waits[:2])
    tell(other, waits[2])
    [told] = problems()
    assert told.startswith(f"3 of {SHADE} fit no daemon that is alive.")
    assert "after 1 h they are FAILED" in told
    assert health.problems(overview.daemons(), overview.now(), type="tests.echo") == ()
    queue.cancel(*waits)
    assert problems() == []


def test_each_signature_may_refuse_others(shade, new, old):
    """In a rolling deploy the old release refuses what is new, and the new what is old."""
    first, second = shade.enqueue(path="a"), shade.enqueue(path="b")
    tell(new, first)
    tell(old, second)
    assert problems() == []
    tell(old, second, first)
    [told] = problems()
    assert told.startswith(f"1 of {SHADE} fits no daemon")


def test_a_daemon_that_does_not_tell_its_signature_may_take_it(shade, new, world):
    """One of another version of ATP."""
    world.host(SHADE, name="older")
    refuse(new, shade.enqueue(path="a"))
    assert problems() == []


def test_rows_that_are_odd(shade, new):
    for odd in ([], {"x": 1}, {SHADE: ["no", None]}, "text"):
        Daemon.objects.filter(uuid=new.uuid).update(misfits=odd, signatures=odd)
        assert problems() == []


def quiet(host):
    Daemon.objects.filter(uuid=host.uuid).update(mode=Mode.QUIET, request="quiet")


def test_why_what_fits_no_daemon_waits(shade, new):
    """A lone daemon defers it all the same: who looks is told until when it may.

    Who may not see errors is told that it does not fit.
    """
    waits = shade.enqueue(path="a")
    refuse(new, waits)
    until = waits.log.filter(kind=Event.DEFER).get().time + timedelta(hours=1)
    for found in (explained(waits), explain(queue.get(waits.uuid), errors=False)):
        # Nobody knows when it starts: its next time is that of its next refusal.
        assert (found.codes, found.starts.is_open) == (("misfit",), True)
    assert "path" not in found.reasons[0].sentence
    told = why(waits)
    assert tells(told, MESSAGE[1:])
    assert f"fits no daemon that is alive, and is FAILED at {text.moment(until)}" in told
    ready, reason = queue.explain(SHADE).reasons
    assert ready.sentence.startswith("Nothing holds back one that is enqueued now")
    assert reason.sentence.startswith(f"1 of {SHADE} fits no daemon that is alive.")
    queue.limit(SHADE, max_running=5, max_running_per_collection=2)
    queue.hold(SHADE)
    with CaptureQueriesContext(connection) as queries:
        assert {"gate", "misfits"} <= {*queue.explain(queue.get_type(SHADE)).codes}
    assert len(queries) <= 10


def test_another_daemon_may_take_it_or_a_quiet_one_alone(shade, new, old):
    waits = shade.enqueue(path="a")
    refuse(new, waits)
    assert problems() == []
    assert "Another daemon that is alive may take it." in why(waits)
    quiet(old)
    assert problems()[0].startswith(f"1 of {SHADE} fits no daemon but quiet ones")
    found = explained(waits)
    assert (found.codes, found.starts.is_open) == (("misfit",), True)
    assert "It fits no daemon but quiet ones." in found.reasons[0].sentence
    assert "FAILED" not in queue.explain(SHADE).reasons[-1].sentence


def test_what_another_daemon_has_deferred_waits_for_another_reason(shade, new, old):
    waits = shade.enqueue(path="a")
    refuse(new, waits)
    queue.change(waits, due=timedelta(0))
    [case] = old.claim()
    details = {"message": "later", "delay": timedelta(minutes=5)}
    old.move(case, Event.DEFER, started=old.world.store.now(), **details)
    assert "FAILED" not in why(waits)


def found_releases():
    return {each.release: each for each in releases.releases(overview.daemons(), overview.now())}


def test_what_each_release_holds_until_it_is_drained_and_what_differs(world, shade, old, new):
    shade.enqueue(path="a")
    [case] = old.claim()
    found = found_releases()
    assert {name: (each.held, each.differs) for name, each in found.items()} == {
        "old": (1, (SHADE,)),
        "new": (0, (SHADE,)),
    }
    assert found["old"].daemons == ("old:1",)
    quiet(old)
    assert not found_releases()["old"].is_drained
    old.move(case, Event.FINISH, started=old.world.store.now())
    assert found_releases()["old"].is_drained
    assert not found_releases()["new"].is_drained
    old.lose_lease()
    member(world, "next", new.signature)
    found = found_releases()
    assert set(found) == {"new", "next"}
    assert found["next"].differs == ()

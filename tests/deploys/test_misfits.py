"""How operators see inputs that fit no daemon, and the releases of the daemons."""

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
    """Return a daemon of a release; ``signature`` is its signature of the Type SHADE."""
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
    """Let a daemon claim due Tasks and refuse these, and report them in its row."""
    for case in host.claim():
        details = {"message": MESSAGE, "detail": incompatible_detail(host.signature)}
        host.move(case, Event.DEFER, started=host.world.store.now(), **details)
    tell(host, *instances)


def tell(host, *instances):
    keys = {SHADE: [each.pk for each in instances]}
    host.world.store.daemons.renew(host.uuid, lease=600, misfits=keys)


def problems():
    found = health.problems(overview.daemons(), overview.now())
    return [each.sentence for each in found if "accept" in each.sentence]


def explained(instance):
    return queue.explain(queue.get(instance.uuid))


def why(instance):
    return " ".join(reason.sentence for reason in explained(instance).reasons)


def test_inputs_that_fit_no_daemon_are_a_health_problem(shade, new, world):
    """The row of a daemon lists the inputs until a later renewal of its lease reports none.

    Two daemons with the same signature count as one.
    """
    other = member(world, "new", new.signature)
    waits = [shade.enqueue(path=name) for name in "abc"]
    assert problems() == []
    refuse(new, *waits[:2])
    tell(other, waits[2])
    assert other.row.misfits == {SHADE: [waits[2].pk]}
    [told] = problems()
    assert told.startswith(f"3 Instances of {SHADE} have inputs that no living daemon accepts.")
    assert "is FAILED after 1 h" in told
    assert health.problems(overview.daemons(), overview.now(), type="tests.echo") == ()
    world.store.daemons.renew(other.uuid, lease=600)
    assert other.row.misfits == {}
    [told] = problems()
    assert told.startswith("2 Instances")
    queue.cancel(*waits)
    assert problems() == []


def test_inputs_are_a_health_problem_only_if_every_living_daemon_refuses_them(shade, new, old):
    """In a rolling deploy the old release refuses new inputs, and the new release old ones."""
    first, second = shade.enqueue(path="a"), shade.enqueue(path="b")
    tell(new, first)
    tell(old, second)
    assert problems() == []
    tell(old, second, first)
    [told] = problems()
    assert told.startswith(f"1 Instance of {SHADE} has inputs that no living daemon")


def test_a_daemon_without_signatures_counts_as_compatible(shade, new, world):
    """A daemon of an older version of ATP reports none. Malformed rows are ignored."""
    world.host(SHADE, name="older")
    refuse(new, shade.enqueue(path="a"))
    assert problems() == []
    for odd in ([], {"x": 1}, {SHADE: ["no", None]}, "text"):
        Daemon.objects.filter(uuid=new.uuid).update(misfits=odd, signatures=odd)
        assert problems() == []


def quiet(host):
    Daemon.objects.filter(uuid=host.uuid).update(mode=Mode.QUIET, request="quiet")


def test_explain_names_inputs_that_fit_no_daemon(shade, new):
    """A single daemon defers the Task; the explanation says when the Task fails.

    A user without the permission to see errors learns only that the inputs do not fit.
    """
    waits = shade.enqueue(path="a")
    refuse(new, waits)
    until = waits.log.filter(kind=Event.DEFER).get().time + timedelta(hours=1)
    for found in (explained(waits), explain(queue.get(waits.uuid), errors=False)):
        assert found.reasons[0].helps.command == "manage.py atpd"
        # Nobody knows when it starts: its next time is that of its next refusal.
        assert (found.codes, found.starts.is_open) == (("misfit",), True)
    assert "path" not in found.reasons[0].sentence
    told = why(waits)
    assert tells(told, MESSAGE[1:])
    assert f"No living daemon accepts it. It is FAILED at {text.moment(until)}" in told
    ready, reason = queue.explain(SHADE).reasons
    assert ready.sentence.startswith("Nothing holds back a new Instance")
    assert reason.sentence.startswith(f"1 Instance of {SHADE} has inputs that no living daemon")
    queue.limit(SHADE, max_running=5, max_running_per_collection=2)
    queue.hold(SHADE)
    with CaptureQueriesContext(connection) as queries:
        assert {"gate", "misfits"} <= {*queue.explain(queue.get_type(SHADE)).codes}
    assert len(queries) <= 10


def test_explain_mentions_another_daemon_that_could_take_the_inputs(shade, new, old):
    waits = shade.enqueue(path="a")
    refuse(new, waits)
    assert problems() == []
    assert "Another daemon that is alive may take it." in why(waits)
    quiet(old)
    assert problems()[0].startswith(f"1 Instance of {SHADE} has inputs that only quiet")
    found = explained(waits)
    assert (found.codes, found.starts.is_open) == (("misfit",), True)
    assert "Only quiet daemons might accept it." in found.reasons[0].sentence
    assert "FAILED" not in queue.explain(SHADE).reasons[-1].sentence


def test_a_deferral_by_a_compatible_daemon_is_not_reported_as_incompatible(shade, new, old):
    waits = shade.enqueue(path="a")
    refuse(new, waits)
    queue.change(waits, due=timedelta(0))
    [case] = old.claim()
    details = {"message": "later", "delay": timedelta(minutes=5)}
    old.move(case, Event.DEFER, started=old.world.store.now(), **details)
    assert "FAILED" not in why(waits)


def found_releases():
    return {each.release: each for each in releases.releases(overview.daemons(), overview.now())}


def test_each_release_lists_its_held_tasks_and_the_types_that_differ(world, shade, old, new):
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

"""What operators are told of inputs that fit no daemon, and of the releases that run."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from atp import queue
from atp.models import Daemon
from atp.reports import health, overview
from atp.reports.deploys import misfits, releases
from atp.reports.explaining.explain import explain
from atp.reports.explaining.explain import why as told_why
from atp.rows.log import misfit
from atp.states import Event
from atp.words import wording
from atp.words.orders import Mode

from ..nonsense import tells
from .conftest import SHADE

MESSAGE = "release new does not take its inputs: there is no argument 'path'"


@pytest.fixture
def old(world):
    return member(world, "old", "aaaa0000")


@pytest.fixture
def new(world):
    return member(world, "new", "bbbb1111")


def member(world, release, signature):
    """A daemon of a release, with this signature of SHADE; ``signature`` is it."""
    host = world.host(SHADE, name=release)
    Daemon.objects.filter(uuid=host.uuid).update(release=release, signatures={SHADE: signature})
    host.signature = signature
    return host


def refuse(host, *instances):
    """Have a daemon claim what is due and refuse these inputs, as its row tells afterwards."""
    for case in host.claim():
        details = {"message": MESSAGE, "detail": misfit(host.signature)}
        host.move(case, Event.DEFER, started=host.world.store.now(), **details)
    tell(host, *instances)


def tell(host, *instances):
    keys = {SHADE: [each.pk for each in instances]}
    host.world.store.renew(host.uuid, lease=600, misfits=keys)


def problems():
    return [each for each in health.problems(overview.daemons(), overview.now()) if "fit" in each]


def why(instance):
    instance = queue.get(instance.uuid)
    return " ".join(told_why(instance, queue.task(instance)))


def test_a_renewal_writes_what_does_not_fit(shade, new):
    """It stands in the daemon's row, and with the next renewal as it is then."""
    waits = shade.enqueue(path="a")
    tell(new, waits)
    assert new.row.misfits == {SHADE: [waits.pk]}
    new.world.store.renew(new.uuid, lease=600)
    assert new.row.misfits == {}


def test_what_fits_no_daemon_is_a_problem(shade, new):
    waits = [shade.enqueue(path=name) for name in "abc"]
    assert problems() == []
    refuse(new, *waits)
    [told] = problems()
    assert told.startswith(f"3 of {SHADE} fit no daemon that is alive.")
    assert "after 1 h they are FAILED" in told
    assert health.problems(overview.daemons(), overview.now(), type="tests.echo") == ()


def test_what_another_daemon_may_take_is_none(shade, new, old):
    refuse(new, shade.enqueue(path="a"))
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


def test_two_daemons_of_one_signature_count_as_one(shade, world, new):
    other = member(world, "new", new.signature)
    first, second = shade.enqueue(path="a"), shade.enqueue(path="b")
    tell(new, first)
    tell(other, second)
    assert problems()[0].startswith(f"2 of {SHADE} fit no daemon")


def test_a_quiet_daemon_would_take_it(shade, new, old):
    refuse(new, shade.enqueue(path="a"))
    Daemon.objects.filter(uuid=old.uuid).update(mode=Mode.QUIET, request="quiet")
    assert problems()[0].startswith(f"1 of {SHADE} fits no daemon but quiet ones")


def test_a_daemon_that_does_not_tell_its_signature_may_take_it(shade, new, world):
    """One of another version of ATP."""
    world.host(SHADE, name="older")
    refuse(new, shade.enqueue(path="a"))
    assert problems() == []


def test_what_ran_elsewhere_is_no_problem_any_more(shade, new):
    waits = shade.enqueue(path="a")
    refuse(new, waits)
    queue.cancel(waits)
    assert problems() == []


def test_rows_that_are_odd(shade, new):
    for odd in ([], {"x": 1}, {SHADE: ["no", None]}, "text"):
        Daemon.objects.filter(uuid=new.uuid).update(misfits=odd, signatures=odd)
        assert problems() == []


class TestWhyItWaits:
    def test_it_fits_no_daemon(self, shade, new):
        """A lone daemon defers it all the same: who looks is told until when."""
        waits = shade.enqueue(path="a")
        refuse(new, waits)
        told = why(waits)
        assert tells(told, MESSAGE[1:])
        until = waits.log.filter(kind=Event.DEFER).get().time + timedelta(hours=1)
        assert f"fits no daemon that is alive, and is FAILED at {wording.moment(until)}" in told

    def test_another_daemon_may_take_it(self, shade, new, old):
        waits = shade.enqueue(path="a")
        refuse(new, waits)
        assert "Another daemon that is alive may take it." in why(waits)

    def test_it_ran_meanwhile(self, shade, new, old):
        """It waits for another reason then."""
        waits = shade.enqueue(path="a")
        refuse(new, waits)
        queue.change(waits, due=timedelta(0))
        [case] = old.claim()
        details = {"message": "later", "delay": timedelta(minutes=5)}
        old.move(case, Event.DEFER, started=old.world.store.now(), **details)
        assert "FAILED" not in why(waits)

    def test_nobody_knows_when_it_starts(self, shade, new):
        """Its next time is that of its next refusal."""
        waits = shade.enqueue(path="a")
        refuse(new, waits)
        found = queue.explain(queue.get(waits.uuid))
        assert (found.codes, found.starts.is_open) == (("misfit",), True)

    def test_its_type_names_it(self, shade, new):
        refuse(new, shade.enqueue(path="a"))
        ready, reason = queue.explain(SHADE).reasons
        assert ready.sentence.startswith("Nothing holds back one that is enqueued now")
        assert reason.sentence.startswith(f"1 of {SHADE} fits no daemon that is alive.")
        queue.hold(SHADE)
        found = queue.explain(SHADE)
        assert found.codes == ("gate", "misfits")

    def test_who_may_not_see_errors_is_told_that_it_does_not_fit(self, shade, new):
        waits = shade.enqueue(path="a")
        refuse(new, waits)
        found = explain(queue.get(waits.uuid), errors=False)
        assert (found.codes, found.starts.is_open) == (("misfit",), True)
        assert "path" not in found.reasons[0].sentence

    def test_only_a_quiet_daemon_may_take_it(self, shade, new, old):
        waits = shade.enqueue(path="a")
        refuse(new, waits)
        Daemon.objects.filter(uuid=old.uuid).update(mode=Mode.QUIET, request="quiet")
        found = queue.explain(queue.get(waits.uuid))
        assert (found.codes, found.starts.is_open) == (("misfit",), True)
        assert "It fits no daemon but quiet ones." in found.reasons[0].sentence
        assert "FAILED" not in queue.explain(SHADE).reasons[-1].sentence

    @pytest.mark.parametrize("is_quiet", [False, True])
    def test_it_takes_ten_queries_at_most(self, shade, new, old, is_quiet):
        refuse(new, shade.enqueue(path="a"))
        if is_quiet:
            Daemon.objects.filter(uuid=old.uuid).update(mode=Mode.QUIET, request="quiet")
        queue.limit(SHADE, max_running=5, max_running_per_collection=2)
        queue.hold(SHADE)
        with CaptureQueriesContext(connection) as queries:
            queue.explain(queue.get_type(SHADE))
        assert len(queries) <= 10

    def test_one_that_never_misfit(self, shade, new):
        never = shade.enqueue(path="a")
        assert misfits.why(never, overview.daemons(), overview.now()) == ("", False)


class TestReleases:
    def found(self):
        return {
            each.release: each for each in releases.releases(overview.daemons(), overview.now())
        }

    def test_who_runs_which_and_what_differs(self, old, new):
        found = self.found()
        assert set(found) == {"old", "new"}
        assert (found["old"].daemons, found["old"].differs) == (("old:1",), (SHADE,))

    def test_the_same_signature_does_not_differ(self, world, old):
        member(world, "next", old.signature)
        assert self.found()["next"].differs == ()

    def test_what_each_holds_until_it_is_drained(self, shade, old, new):
        shade.enqueue(path="a")
        [case] = old.claim()
        assert (self.found()["old"].held, self.found()["new"].held) == (1, 0)
        Daemon.objects.filter(uuid=old.uuid).update(mode=Mode.QUIET, request="quiet")
        assert not self.found()["old"].is_drained
        old.move(case, Event.FINISH, started=old.world.store.now())
        assert self.found()["old"].is_drained
        assert not self.found()["new"].is_drained

    def test_a_lost_daemon_runs_nothing(self, old, new):
        old.lose_lease()
        assert set(self.found()) == {"new"}

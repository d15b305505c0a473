"""Why what waits does not start, in words."""

from datetime import timedelta

import pytest

from atp import queue
from atp.reports import overview
from atp.reports.explaining import notes as room
from atp.reports.explaining.explain import why
from atp.reports.explaining.notes import notes
from atp.reports.explaining.sentences import READY
from atp.states import Event

from .app.tasks import add, echo


@pytest.fixture(autouse=True)
def served(world, host):
    """The Types of the tests are registered, and a daemon serves them."""
    queue.register(add, echo)


def told(instance):
    return why(instance, queue.task(instance))


class TestWhy:
    def test_nothing_is_in_its_way(self):
        assert told(echo.enqueue()) == (READY,)

    def test_what_does_not_wait(self, host):
        running, ended = echo.enqueue(), echo.enqueue()
        queue.cancel(ended)
        host.claim()
        assert (told(running), told(ended)) == ((), ())

    @pytest.mark.parametrize("type", [None, "tests.echo"])
    def test_a_gate(self, type):
        """By whom, until when and why."""
        one = echo.enqueue()
        queue.hold(type, reason="the relay is down", until=timedelta(hours=2), by="ann via page")
        [gate] = queue.gates()
        [said] = told(one)
        assert said.startswith(f"{type or 'Everything'} is held by ann via page until ")
        assert f"{gate.until:%Y-%m-%d}" in said
        assert said.endswith("(the relay is down).")

    def test_gates_of_other_places(self):
        one = echo.using(collection="a").enqueue()
        queue.hold("tests.add")
        queue.hold("tests.echo", "b")
        queue.hold("tests.echo", "")
        assert told(one) == (READY,)
        queue.drop("tests.echo", "a")
        assert told(one) == ("tests.echo, collection 'a', is to be dropped.",)

    def test_its_due_time(self):
        one = echo.using(run_after=timedelta(hours=1)).enqueue()
        [said] = told(one)
        assert said.startswith("It is not due before 20")

    def test_a_limit_that_is_full(self, host):
        queue.limit("tests.echo", max_running=1)
        first, second = echo.enqueue(), echo.enqueue()
        assert told(first) == (READY,)
        host.claim()
        assert told(second) == ("tests.echo is limited to 1 at once, and 1 is claimed.",)

    def test_a_rate_that_is_used_up(self, host):
        queue.limit("tests.echo", "a", rate="1/h")
        one, two, free = (echo.using(collection=name).enqueue() for name in ("a", "a", "b"))
        host.claim()
        assert told(one) == told(free) == ()
        [said] = told(two)
        assert said.startswith("tests.echo, collection 'a', is limited to 1/h, and the next may")

    @pytest.mark.parametrize("mode", ["quiet", "stopping"])
    def test_only_who_is_quiet_serves_it(self, world, host, mode):
        one = echo.enqueue()
        world.store.renew(host.uuid, lease=30, mode=mode)
        if mode == "quiet":
            queue.command(host.uuid, "quiet")
        assert told(one) == (f"What serves it is {mode}.",)

    def test_nobody_serves_it(self, world, host):
        one = echo.enqueue()
        host.lose_lease()
        assert told(one) == ("No daemon is alive. The last that served it was host:1.",)
        world.host("tests.add")
        assert told(one) == (
            "No daemon serves it. The last that served it was host:1. "
            "A daemon knows the Types of the code with which it started.",
        )

    def test_all_at_once(self, host):
        one = echo.using(run_after=timedelta(hours=1)).enqueue()
        queue.hold()
        queue.drop("tests.echo")
        host.lose_lease()
        assert len(told(one)) == 4

    def test_few_queries(self, host, django_assert_max_num_queries):
        queue.limit("tests.echo", max_running=1)
        one = echo.enqueue()
        task = queue.task(one)
        one.type.identifier  # noqa: B018
        with django_assert_max_num_queries(6):
            why(one, task)


class TestNotes:
    def test_there_is_nothing_to_tell(self, host):
        queue.limit("tests.echo", max_running=1, weight=3)
        echo.enqueue()
        assert notes(overview.now()) == ()

    def test_gates_and_what_is_due_there(self):
        echo.enqueue()
        echo.using(run_after=timedelta(hours=1)).enqueue()
        queue.hold("tests.echo", by="ann")
        queue.hold("tests.add")
        assert notes(overview.now()) == (
            "tests.add is held: nothing of that is due.",
            "tests.echo is held by ann: 1 that waits there is due.",
        )

    def test_no_more_is_counted_than_has_to_be(self, monkeypatch):
        monkeypatch.setattr(room, "MOST", 2)
        echo.enqueue_many([{}] * 4)
        queue.hold()
        assert notes(overview.now()) == (
            "Everything is held: more than 2 that wait there are due.",
        )

    def test_limits_that_are_full(self, host):
        queue.limit("tests.echo", max_running=2)
        echo.enqueue_many([{}] * 5)
        for claimed in host.claim():
            host.move(claimed, Event.START)
        assert notes(overview.now()) == (
            "tests.echo is limited to 2 at once, and 2 are claimed: 3 that wait there are due.",
        )
        queue.hold("tests.echo")
        assert len(notes(overview.now())) == 1  # the limit is not what they wait for

    def test_not_all_of_very_many(self, monkeypatch, host):
        monkeypatch.setattr(room, "SHOWN", 1)
        for name in "abc":
            queue.hold("tests.echo", name)
            queue.limit("tests.add", name, max_running=1)
        assert len(notes(overview.now())) == 3

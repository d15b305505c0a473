"""Each cause: the situation, the code that comes first, the act that ends it, and the start."""

import logging
from datetime import timedelta

import pytest
from django.db import connection, transaction

from atp import queue, task_type
from atp.models import Instance, Task
from atp.reports.explaining import gathering
from atp.reports.explaining.causes.table import CAUSES
from atp.rows.log import misfit
from atp.states import Event, Reason
from atp.store import get_store
from atp.verbs.registry import registry
from atp.words.uuids import uuid7
from tests.helpers import open_transaction

from ..app import tasks_downstream
from ..app.tasks import add, echo

HOUR = timedelta(hours=1)


def _of_another_module(context):
    pass


def test_what_nothing_holds_back(scene):
    one = echo.enqueue()
    assert scene.codes(one) == ("ready",)
    assert scene.starts(one)


class TestEnds:
    def test_no_such(self, scene):
        found = queue.explain(uuid7())
        assert (found.codes, found.state, found.starts) == (("no-such",), "", None)

    def test_removed_by_somebody(self, scene):
        one = echo.enqueue()
        queue.delete(one, cancel=True, by="ann")
        found = scene.first(str(one.uuid))
        assert found.code == "no-such"
        assert "one of tests.echo was removed by ann" in found.sentence

    def test_failed(self, scene):
        one = echo.enqueue()
        [case] = scene.host.claim()
        scene.host.move(case, Event.START)
        message = "Traceback (most recent call last):\nValueError: no relief"
        scene.host.move(case, Event.FAIL, reason=Reason.ERROR, message=message, level=logging.ERROR)
        found = scene.first(one)
        assert (found.code, found.facts["reason"]) == ("ended", "ERROR")
        assert found.sentence.endswith("ValueError: no relief.")
        assert found.helps.permission == "atp.operate"
        scene.apply(found)
        assert scene.starts(one)

    def test_finished(self, scene):
        one = echo.enqueue()
        [case] = scene.host.claim()
        scene.host.move(case, Event.START, Event.FINISH)
        found = queue.explain(one)
        assert (found.codes, found.starts) == (("ended",), None)
        assert found.reasons[0].helps is None


class TestHeld:
    def test_cancel_asked(self, scene):
        one = echo.enqueue()
        assert scene.starts(one)
        queue.cancel(one, by="ann")
        found = scene.first(one)
        assert (found.code, found.facts["who"]) == ("cancel-asked", "ann")
        assert found.until - found.since == timedelta(seconds=10)
        assert scene.codes(one) == ("cancel-asked", "running")

    def test_paused(self, scene):
        one = echo.enqueue()
        scene.starts(one)
        queue.pause(one, by="ann")
        scene.move(one, Event.PAUSE)
        found = scene.first(one)
        assert (found.code, found.facts["who"]) == ("paused", "ann")
        scene.apply(found)
        scene.move(one, Event.RESUME)
        assert scene.codes(one) == ("running",)

    def test_paused_whoever_else_has_asked_for_something(self, scene):
        """The attempt of its own, and only a request to pause."""
        one = echo.enqueue()
        scene.starts(one)
        queue.pause(one, by="dave")
        scene.move(one, Event.PAUSE)
        scene.move(one, Event.RELEASE)
        scene.starts(one)
        scene.move(one, Event.PAUSE)
        found = scene.first(one)
        assert (found.code, found.facts["who"]) == ("paused", "")
        queue.resume(one, by="bob")
        found = scene.first(one)
        assert (found.code, found.facts["who"], found.helps) == ("paused", "", None)

    def test_running_after_a_pause(self, scene):
        """The time-out does not count the pause."""
        one = add.enqueue(1)
        scene.starts(one)
        scene.move(one, Event.PAUSE, Event.RESUME)
        found = scene.first(one)
        assert (found.code, found.until, found.facts["is_slow"]) == ("running", None, False)

    def test_running(self, scene):
        one = add.enqueue(1)
        scene.starts(one)
        found = scene.first(one)
        assert (found.code, found.facts["attempt"], found.facts["is_slow"]) == ("running", 1, False)
        assert found.until - found.since == timedelta(seconds=60)
        assert found.helps is None

    def _run_for_an_hour(self, scene, others):
        """Return the first Reason for one that runs, beside others that have ended after 2 s."""
        ended = echo.enqueue_many([{}] * others)
        for case in scene.host.claim(others):
            scene.host.move(case, Event.START, Event.FINISH)
        one = echo.enqueue()
        scene.starts(one)
        now = get_store().now()
        Instance.objects.filter(pk=one.pk).update(started=now - HOUR)
        own = Instance.objects.filter(pk__in=[each.pk for each in ended])
        own.update(started=now - timedelta(seconds=2))
        return one, scene.first(one)

    def test_running_for_longer_than_its_type_does(self, scene):
        """The act hands it back, and it starts again."""
        one, found = self._run_for_an_hour(scene, 10)
        assert (found.code, found.facts["is_slow"]) == ("running", True)
        assert "longer than the last 10 of its Type" in found.sentence
        scene.apply(found)
        scene.move(one, Event.RELEASE)
        assert scene.starts(one)

    def test_a_hundred_runs_have_a_quantile(self, scene):
        _, found = self._run_for_an_hour(scene, 100)
        assert "longer than 99 of 100 of its Type" in found.sentence

    def test_three_runs_do_not_show_that_one_is_slow(self, scene):
        _, found = self._run_for_an_hour(scene, 3)
        assert not found.facts["is_slow"]

    def test_claimed(self, scene):
        one = echo.enqueue()
        scene.host.claim()
        found = scene.first(one)
        assert (found.code, found.facts["daemon"]) == ("claimed", "host:1")
        scene.apply(found)
        scene.move(one, Event.RELEASE)
        assert scene.starts(one)

    def test_the_holder_is_late(self, scene):
        one = echo.enqueue()
        scene.starts(one)
        scene.row().update(seen=get_store().now() - timedelta(minutes=1))
        assert scene.codes(one) == ("holder-late", "running")

    def test_the_holder_is_lost(self, scene, world):
        one = echo.enqueue()
        scene.starts(one)
        scene.host.lose_lease()
        found = scene.first(one)
        assert (found.code, found.facts["others"]) == ("holder-lost", 0)
        assert scene.codes(one) == ("holder-lost",)
        assert found.helps.command == "manage.py atpd"
        other = world.host("tests.echo", name="other")
        assert scene.first(one).until is not None
        world.store.sweep(daemon=other.uuid)
        assert scene.starts(one, other)


class TestControl:
    @pytest.mark.parametrize(
        "scope", [(), ("tests.echo",), ("tests.echo", "a")], ids=["everything", "Type", "lane"]
    )
    def test_a_gate(self, scene, scope):
        one = echo.using(collection="a").enqueue()
        queue.hold(*scope, reason="upgrade", until=HOUR, by="ann")
        assert not scene.starts(one)
        found = scene.first(one)
        assert (found.code, found.facts["who"]) == ("gate", "ann")
        assert found.until > found.since
        scene.apply(found)
        assert scene.starts(one)

    def test_a_limit_that_is_full(self, scene):
        queue.limit("tests.echo", max_running=1)
        scene.starts(echo.enqueue())
        one = echo.enqueue()
        assert not scene.starts(one)
        found = scene.first(one)
        assert (found.code, found.facts["held"]) == ("max-running", 1)
        scene.apply(found)
        assert scene.starts(one)

    def test_the_limit_of_a_lane(self, scene):
        queue.limit("tests.echo", "a", max_running=1)
        lane = echo.using(collection="a")
        scene.starts(lane.enqueue())
        one, other = lane.enqueue(), echo.using(collection="b").enqueue()
        assert scene.codes(other) == ("ready",)
        found = scene.first(one)
        assert (found.code, found.facts["collection"]) == ("max-running", "a")
        scene.apply(found)
        assert scene.starts(one)

    def test_the_limit_of_each_lane(self, scene):
        queue.limit("tests.echo", max_running_per_collection=1)
        lane = echo.using(collection="a")
        scene.starts(lane.enqueue())
        one = lane.enqueue()
        assert not scene.starts(one)
        found = scene.first(one)
        assert (found.code, found.facts["limit"]) == ("max-running-per-collection", 1)
        scene.apply(found)
        assert scene.starts(one)

    def test_a_rate_that_is_used_up(self, scene):
        queue.limit("tests.echo", rate="1/h")
        scene.starts(echo.enqueue())
        one = echo.enqueue()
        found = queue.explain(one)
        reason = found.reasons[0]
        assert reason.code == "rate"
        assert found.starts.low >= reason.until - found.looked_at
        scene.apply(reason)
        assert scene.starts(one)

    def test_a_downstream_that_fails(self, scene, world):
        queue.register(tasks_downstream.other)
        host = world.host("downstream.other")
        one = tasks_downstream.other.enqueue()
        queue.trip_downstream("relay", by="ann")
        assert not scene.starts(one, host)
        found = scene.first(one)
        assert (found.code, found.facts["downstream"]) == ("downstream", "relay")
        scene.apply(found)
        assert scene.starts(one, host)


class TestDue:
    def test_as_was_asked(self, scene):
        one = echo.using(run_after=HOUR).enqueue()
        found = queue.explain(one)
        assert found.codes == ("not-due",)
        assert found.starts.low > timedelta(minutes=59)
        scene.apply(found.reasons[0])
        assert scene.starts(one)

    def test_a_retry(self, scene):
        one = add.enqueue(1)
        scene.starts(one)
        message = "Traceback (most recent call last):\nOSError: 503"
        scene.move(one, Event.RETRY, delay=HOUR, message=message, level=logging.WARNING)
        found = scene.first(one)
        assert found.code == "retry"
        assert found.facts == {"retry": 1, "of": 2, "error": "OSError: 503"}
        assert found.sentence.startswith('Retry 1 of 2 after "OSError: 503" is due in ')
        scene.apply(found)
        assert scene.starts(one)

    def test_deferred_by_its_handler(self, scene):
        one = echo.enqueue()
        scene.starts(one)
        scene.move(one, Event.DEFER, delay=HOUR)
        found = scene.first(one)
        assert found.code == "deferred"
        scene.apply(found)
        assert scene.starts(one)

    def test_inputs_that_fit_no_daemon(self, scene, world):
        """Another daemon, whose handler takes them, starts it."""
        one = echo.enqueue()
        scene.row().update(signatures={"tests.echo": "old"})
        scene.starts(one)
        scene.move(one, Event.DEFER, detail=misfit("old"), message="they do not fit")
        Task.objects.filter(pk=one.pk).update(due_at=get_store().now())
        found = scene.first(one)
        assert found.code == "misfit"
        assert found.helps.command == "manage.py atpd"
        assert queue.explain(one).starts.is_open
        assert scene.starts(one, world.host("tests.echo", name="new"))

    def test_a_node_that_waits_for_others(self, scene):
        from atp import Graph

        graph = Graph("mosaic")
        first = graph.add(echo, name="first")
        graph.add(echo, name="then", after=[first])
        graph.submit()
        then = Instance.objects.get(node__name="then")
        found = queue.explain(then)
        assert found.codes == ("blocked",)
        assert found.reasons[0].facts["upstream"][0]["name"] == "first"
        assert (found.starts.is_open, found.starts.why) == (True, "blocked")
        [case] = scene.host.claim()
        scene.host.move(case, Event.START, Event.FINISH)
        assert scene.starts(then)

    def test_one_that_waits_for_those_before_it_of_its_schedule(self, scene):
        queue.create_schedule("tide", "tests.echo", every=HOUR, overlap="queue", by="ann")
        first, second = scene.plan("tide"), scene.plan("tide")
        found = queue.explain(second)
        assert found.codes == ("in-line",)
        assert (found.starts.is_open, found.starts.why) == (True, "in-line")
        assert scene.starts(first)
        scene.move(first, Event.FINISH)
        assert scene.starts(second)


class TestServing:
    def test_nobody_serves_it(self, scene, world):
        one = echo.enqueue()
        scene.host.lose_lease()
        world.host("tests.add", name="other")
        found = queue.explain(one)
        assert found.codes == ("unserved",)
        assert found.reasons[0].sentence == (
            "No daemon serves it. The last that served it was host:1. "
            "A daemon knows the Types of the code with which it started."
        )
        assert found.starts.why == "unserved"
        assert scene.starts(one, world.host("tests.echo", name="new"))

    def test_daemons_do_not_import_the_module_that_declares_it(self, scene, monkeypatch):
        """To start another daemon would not help."""
        monkeypatch.setattr(registry, "_types", dict(registry._types))
        declared = task_type("tests.elsewhere")(_of_another_module)
        found = queue.explain(declared.enqueue()).reasons[0]
        assert found.sentence == (
            "No daemon serves it. Daemons import the modules called tasks.py of installed apps, "
            "those that OPTIONS['modules'] in the setting TASKS names, and what these import; it "
            f"is declared in {__name__}."
        )
        assert found.facts["module"] == __name__
        assert found.helps.label == f"Import {__name__} in a tasks.py, and restart the daemon"

    def test_nobody_serves_it_and_the_last_is_gone(self, scene, world):
        before = echo.enqueue()
        [case] = scene.host.claim()
        scene.host.move(case, Event.START, Event.FINISH)
        who = before.log.filter(kind=Event.CLAIM).get().who
        one = echo.enqueue()
        world.store.leave(scene.host.uuid)
        assert scene.first(one).facts["last"] == who

    def test_who_serves_it_is_quiet(self, scene, world):
        one = echo.enqueue()
        queue.command(scene.host.uuid, "quiet")
        found = scene.first(one)
        assert found.code == "quiet"
        scene.apply(found)
        assert scene.codes(one) == ("ready",)
        assert scene.starts(one)

    def test_all_workers_are_busy(self, scene, world):
        running = [echo.enqueue(), add.enqueue(1)]
        scene.starts(running[0])
        one = echo.enqueue()
        scene.tell_workers(*running)
        found = scene.first(one)
        assert found.code == "workers-busy"
        assert found.facts["types"] == {"tests.echo": 1, "tests.add": 1}
        assert found.facts["longest"]["instance"] == str(running[1].uuid)
        other = world.host("tests.echo", name="other")
        scene.tell_workers(count=1, host=other)
        assert scene.codes(one) == ("ready",)
        assert scene.starts(one, other)


class TestTurn:
    def test_others_are_before_it(self, scene):
        """The act puts it first."""
        echo.using(priority=7).enqueue()
        echo.enqueue_many([{}] * 3)
        one = echo.enqueue()
        found = queue.explain(one)
        reason = found.reasons[0]
        assert (reason.code, found.ahead) == ("behind", 4)
        assert reason.facts["by_priority"] == 1
        for _ in range(8):
            if (reason := scene.first(one)).code != "behind":
                break
            queue.change(one, priority=8)
        assert scene.codes(one) == ("ready",)
        [case] = scene.host.claim(limit=1)
        assert case.instance == one.pk

    def test_what_is_dated_in_the_future_is_not_before_it(self, scene):
        echo.using(run_after=HOUR).enqueue()
        echo.using(run_after=HOUR, priority=9).enqueue()
        assert scene.codes(echo.enqueue()) == ("ready",)

    def test_it_runs_alone_after_a_loss(self, scene):
        one = echo.enqueue()
        scene.starts(one)
        scene.move(one, Event.EXPIRE)
        found = scene.first(one)
        assert (found.code, found.facts["lost"]) == ("alone", 1)
        assert scene.starts(one)

    @pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite tells nothing of them")
    @pytest.mark.django_db(transaction=True)
    def test_a_transaction_that_is_open(self, monkeypatch, transactional_db):
        monkeypatch.setattr(gathering, "LONG", 0.0)
        queue.register(echo)
        one = echo.enqueue()
        pids = []

        def lock():
            list(Instance.objects.select_for_update().filter(pk=one.pk))
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                pids.extend(cursor.fetchone())

        def told():
            """What is told of this transaction; others may be open at any moment."""
            found = [r for r in queue.explain(one).reasons if r.code == "transaction"]
            return [reason for reason in found if reason.facts["pid"] in pids]

        with open_transaction(lock):
            [found] = told()
        assert found.helps.command == f"SELECT pg_terminate_backend({found.facts['pid']});"
        assert told() == []

    @pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite tells nothing of them")
    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("how", ["row", "row in a savepoint", "updated row", "table"])
    def test_a_transaction_that_has_locked_its_row_or_the_table(
        self, monkeypatch, transactional_db, world, how
    ):
        monkeypatch.setattr(gathering, "LOCKING", 0.0)
        world.host("tests.echo")
        one, other = echo.enqueue(), echo.enqueue()
        rows = Task.objects.filter(pk=one.pk)
        pids = []

        def lock():
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                pids.extend(cursor.fetchone())
                if how == "table":
                    cursor.execute("LOCK TABLE atp_task IN EXCLUSIVE MODE")
                elif how == "row":
                    list(rows.select_for_update())
                elif how == "updated row":
                    rows.update(priority=1)
                else:
                    Instance.objects.filter(pk=one.pk).update(progress_message="first")
                    with transaction.atomic():
                        list(rows.select_for_update())

        with open_transaction(lock):
            found, of_other = queue.explain(one), queue.explain(other)
        [reason] = [reason for reason in found.reasons if reason.code == "locked"]
        assert [reason.facts["pid"]] == pids
        assert reason.facts["statement_since"] >= reason.since
        what = "the table atp_task" if how == "table" else "its row"
        assert f" and has locked {what} in the database; its last statement" in reason.sentence
        assert reason.helps.command == f"SELECT pg_terminate_backend({pids[0]});"
        assert found.starts.why == "locked"
        assert of_other.has("locked") == (how == "table")
        # The row still names the transaction that has ended: nobody else is blamed for it.
        with open_transaction(lambda: list(Task.objects.select_for_update().filter(pk=other.pk))):
            assert not queue.explain(one).has("locked")


def test_two_causes_are_both_told(scene):
    one = echo.using(run_after=HOUR).enqueue()
    queue.hold("tests.echo")
    queue.limit("tests.echo", rate="1/h")
    scene.row().update(mode="quiet", request="quiet")
    assert scene.codes(one) == ("gate", "not-due", "quiet")
    found = queue.explain(one)
    assert found.starts.is_open
    assert found.starts.why == "gate"


def test_nobody_is_told_twice():
    assert len(set(CAUSES)) == len(CAUSES)

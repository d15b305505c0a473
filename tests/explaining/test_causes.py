"""Each cause: the situation, the code that comes first, the act that ends it, and the start."""

import logging
from datetime import timedelta

import pytest
from django.db import connection, transaction

from atp import Graph, queue, task_type
from atp.fields import uuid7
from atp.models import Instance, Task, incompatible_detail
from atp.operations.registry import registry
from atp.reports.explaining import gathering
from atp.states import Event, Reason
from atp.store import get_store
from tests.helpers import open_transaction

from ..app import tasks_downstream
from ..app.tasks import add, echo

HOUR = timedelta(hours=1)


def _of_another_module(context):
    pass


def backend_pid():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


def test_what_nothing_holds_back(scene):
    one = echo.enqueue()
    assert scene.codes(one) == ("ready",)
    assert scene.starts(one)


class TestEnds:
    def test_no_such(self, scene):
        found = queue.explain(uuid7())
        assert (found.codes, found.state, found.starts) == (("no-such",), "", None)
        one = echo.enqueue()
        queue.delete(one, cancel=True, by="ann")
        found = scene.first(str(one.uuid))
        assert found.code == "no-such"
        assert "one of tests.echo was removed by ann" in found.sentence

    def test_failed(self, scene):
        one = echo.enqueue()
        scene.starts(one)
        message = "Traceback (most recent call last):\nValueError: no relief"
        scene.move(one, Event.FAIL, reason=Reason.ERROR, message=message, level=logging.ERROR)
        found = scene.first(one)
        assert (found.code, found.facts["reason"]) == ("ended", "ERROR")
        assert found.sentence.endswith("ValueError: no relief.")
        assert found.helps.permission == "atp.operate"
        scene.apply(found)
        assert scene.starts(one)

    def test_finished(self, scene):
        found = queue.explain(scene.run())
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
        """Who has asked for it is told if it was this attempt that was asked."""
        one = echo.enqueue()
        scene.starts(one)
        queue.pause(one, by="ann")
        scene.move(one, Event.PAUSE)
        found = scene.first(one)
        assert (found.code, found.facts["who"]) == ("paused", "ann")
        scene.apply(found)
        scene.move(one, Event.RESUME)
        assert scene.codes(one) == ("running",)
        scene.move(one, Event.RELEASE)
        scene.starts(one)
        scene.move(one, Event.PAUSE)
        found = scene.first(one)
        assert (found.code, found.facts["who"]) == ("paused", "")
        queue.resume(one, by="bob")
        found = scene.first(one)
        assert (found.code, found.facts["who"], found.helps) == ("paused", "", None)

    def test_running(self, scene):
        """The time-out does not count a pause."""
        one = add.enqueue(1)
        scene.starts(one)
        found = scene.first(one)
        assert (found.code, found.facts["attempt"], found.facts["is_slow"]) == ("running", 1, False)
        assert found.until - found.since == timedelta(seconds=60)
        assert found.helps is None
        scene.move(one, Event.PAUSE, Event.RESUME)
        found = scene.first(one)
        assert (found.code, found.until, found.facts["is_slow"]) == ("running", None, False)

    def test_running_for_longer_than_its_type_does(self, scene):
        """A hundred runs have a quantile, ten a longest, and three do not show it."""

        def run_for_an_hour(others):
            """Return one that runs for an hour, beside others that have ended after 2 s."""
            scene.run(others, timedelta(seconds=2))
            one = echo.enqueue()
            scene.starts(one)
            Instance.objects.filter(pk=one.pk).update(started=get_store().now() - HOUR)
            scene.row().update(seen=get_store().now())  # so many runs may take long
            return one

        assert not scene.first(run_for_an_hour(3)).facts["is_slow"]
        one = run_for_an_hour(7)
        found = scene.first(one)
        assert (found.code, found.facts["is_slow"]) == ("running", True)
        assert "longer than the last 10 of its Type" in found.sentence
        scene.apply(found)  # hands it back
        scene.move(one, Event.RELEASE)
        assert scene.starts(one)
        found = scene.first(run_for_an_hour(100))
        assert "longer than 99 of 100 of its Type" in found.sentence

    def test_claimed(self, scene):
        one = echo.enqueue()
        scene.host.claim()
        found = scene.first(one)
        assert (found.code, found.facts["daemon"]) == ("claimed", "host:1")
        scene.apply(found)
        scene.move(one, Event.RELEASE)
        assert scene.starts(one)

    def test_the_holder_is_late_or_lost(self, scene, world):
        one = echo.enqueue()
        scene.starts(one)
        scene.row().update(seen=get_store().now() - timedelta(minutes=1))
        assert scene.codes(one) == ("holder-late", "running")
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
    def test_a_gate(self, scene):
        """Gates of other places are no reason."""
        one = echo.using(collection="a").enqueue()
        for place in (("tests.add",), ("tests.echo", "b"), ("tests.echo", "")):
            queue.hold(*place)
        assert scene.codes(one) == ("ready",)
        for scope in ((), ("tests.echo",), ("tests.echo", "a")):
            queue.hold(*scope, reason="upgrade", until=HOUR, by="ann")
            assert not scene.starts(one)
            found = scene.first(one)
            assert (found.code, found.facts["who"]) == ("gate", "ann"), scope
            assert found.until > found.since
            scene.apply(found)
        assert scene.starts(one)

    def test_a_limit_that_is_full(self, scene):
        """That of the Type, of one lane, and of each lane."""
        lane = echo.using(collection="a")
        scene.starts(lane.enqueue())
        one, other = lane.enqueue(), echo.using(collection="b").enqueue()
        of_each = "max_running_per_collection", "max-running-per-collection"
        for scope, name, code, code_of_other in (
            (("tests.echo",), "max_running", "max-running", "max-running"),
            (("tests.echo",), *of_each, "ready"),
            (("tests.echo", "a"), "max_running", "max-running", "ready"),
        ):
            queue.limit(*scope, **{name: 1})
            found = scene.first(one)
            assert (found.code, found.facts["limit"]) == (code, 1)
            assert scene.first(other).code == code_of_other
            scene.apply(found)
            assert scene.codes(one) == ("ready",)
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

    def test_a_retry_and_a_deferral(self, scene):
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
        scene.move(one, Event.DEFER, detail=incompatible_detail("old"), message="they do not fit")
        Task.objects.filter(pk=one.pk).update(due_at=get_store().now())
        found = scene.first(one)
        assert found.code == "misfit"
        assert found.helps.command == "manage.py atpd"
        assert queue.explain(one).starts.is_open
        assert scene.starts(one, world.host("tests.echo", name="new"))

    def test_a_node_that_waits_for_others(self, scene):
        with Graph("mosaic") as graph:
            graph.add(echo, name="then", after=graph.add(echo, name="first"))
        then = graph.instance("then")
        found = queue.explain(then)
        assert found.codes == ("blocked",)
        assert found.reasons[0].facts["upstream"][0]["name"] == "first"
        assert (found.starts.is_open, found.starts.why) == (True, "blocked")
        scene.starts(graph.instance("first"))
        scene.move(graph.instance("first"), Event.FINISH)
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
        """Who has served it is told, also if its row is gone."""
        before = scene.run()
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
        world.store.leave(scene.host.uuid)
        who = before.log.filter(kind=Event.CLAIM).get().who
        assert scene.first(one).facts["last"] == who
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
        """The act puts it first. What is dated in the future is not before it."""
        echo.using(run_after=HOUR, priority=9).enqueue()
        assert scene.codes(echo.using(priority=7).enqueue()) == ("ready",)
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

    def test_it_runs_alone_after_a_loss(self, scene):
        one = echo.enqueue()
        scene.starts(one)
        scene.move(one, Event.EXPIRE)
        found = scene.first(one)
        assert (found.code, found.facts["lost"]) == ("alone", 1)
        assert scene.starts(one)

    @pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite tells nothing of them")
    @pytest.mark.django_db(transaction=True)
    def test_a_transaction_that_is_open_or_has_locked_its_row_or_the_table(
        self, monkeypatch, transactional_db, world
    ):
        world.host("tests.echo")
        queue.register(echo)
        one, other = echo.enqueue(), echo.enqueue()
        rows = Task.objects.filter(pk=one.pk)

        def blamed(code, take):
            """Return what one and the other are told of a transaction that has done this."""
            pids = []

            def work():
                pids.append(backend_pid())
                take()

            with open_transaction(work):
                found = queue.explain(one), queue.explain(other)
            reasons = [[r for r in each.reasons if r.code == code] for each in found]
            # Others may be open at any moment.
            own = [[r for r in each if r.facts["pid"] in pids] for each in reasons]
            for [reason] in filter(None, own):
                assert reason.helps.command == f"SELECT pg_terminate_backend({pids[0]});"
            return (found[0].starts.why, *own)

        with monkeypatch.context() as context:
            context.setattr(gathering, "LONG", 0.0)
            instances = Instance.objects.select_for_update().filter(pk=one.pk)
            _, found, _ = blamed("transaction", lambda: list(instances))
        assert len(found) == 1
        monkeypatch.setattr(gathering, "LOCKING", 0.0)

        def in_a_savepoint():
            Instance.objects.filter(pk=one.pk).update(progress_message="first")
            with transaction.atomic():
                list(rows.select_for_update())

        def table():
            with connection.cursor() as cursor:
                cursor.execute("LOCK TABLE atp_task IN EXCLUSIVE MODE")

        for take, what in (
            (lambda: list(rows.select_for_update()), "its row"),
            (in_a_savepoint, "its row"),
            (lambda: rows.update(priority=1), "its row"),
            (table, "the table atp_task"),
        ):
            why, [reason], of_other = blamed("locked", take)
            assert why == "locked"
            assert reason.facts["statement_since"] >= reason.since
            assert f" and has locked {what} in the database; its last stat" in reason.sentence
            assert bool(of_other) == (take is table)
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

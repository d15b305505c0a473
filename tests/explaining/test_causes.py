"""Each cause of waiting: its code, the action that removes the cause, and the estimated start."""

import logging
from datetime import timedelta

import pytest
from django.db import connection, transaction

from atp import Graph, queue, task_type
from atp.fields import uuid7
from atp.models import Instance, Task
from atp.operations.registry import registry
from atp.reports.explaining import gathering
from atp.states import Event, Reason
from atp.store import get_store
from tests.helpers import open_transaction

from ..app.tasks import add, echo

HOUR = timedelta(hours=1)


def _of_another_module(context):
    pass


def backend_pid():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


class TestAttempts:
    def test_explain_reports_an_instance_that_has_ended_or_does_not_exist(self, scene):
        """A failed one is reported with its error, a deleted one with who removed it."""
        found = queue.explain(uuid7())
        assert (found.codes, found.state, found.starts) == (("no-such",), "", None)
        one = echo.enqueue()
        queue.delete(one, cancel=True, by="ann")
        found = scene.finds(str(one.uuid), "no-such")
        assert "It belonged to tests.echo and was removed by ann" in found.sentence
        found = queue.explain(scene.run())
        assert (found.codes, found.starts) == (("ended",), None)
        assert found.reasons[0].helps is None
        one = echo.enqueue()
        scene.starts(one)
        message = "Traceback (most recent call last):\nValueError: no relief"
        scene.move(one, Event.FAIL, reason=Reason.ERROR, message=message, level=logging.ERROR)
        found = scene.finds(one, "ended", reason="ERROR")
        assert found.sentence.endswith("ValueError: no relief.")
        assert found.helps.permission == "atp.operate"
        scene.apply(found)
        assert scene.starts(one)

    def test_explain_reports_who_asked_to_pause_or_to_cancel(self, scene):
        """An earlier attempt's request to pause does not count."""
        one = echo.enqueue()
        assert scene.starts(one)
        queue.cancel(one, by="ann")
        found = scene.finds(one, "cancel-asked", who="ann")
        assert found.until - found.since == timedelta(seconds=10)
        assert scene.codes(one) == ("cancel-asked", "running")
        one = echo.enqueue()
        scene.starts(one)
        queue.pause(one, by="ann")
        scene.move(one, Event.PAUSE)
        scene.apply(scene.finds(one, "paused", who="ann"))
        scene.move(one, Event.RESUME)
        assert scene.codes(one) == ("running",)
        scene.move(one, Event.RELEASE)
        scene.starts(one)
        scene.move(one, Event.PAUSE)
        scene.finds(one, "paused", who="")
        queue.resume(one, by="bob")
        assert scene.finds(one, "paused", who="").helps is None

    def test_explain_reports_a_running_attempt_and_its_timeout(self, scene):
        """The timeout excludes pauses."""
        one = add.enqueue(1)
        scene.starts(one)
        found = scene.finds(one, "running", attempt=1, is_slow=False)
        assert found.until - found.since == timedelta(seconds=60)
        assert found.helps is None
        scene.move(one, Event.PAUSE, Event.RESUME)
        assert scene.finds(one, "running", is_slow=False).until is None

    def test_explain_reports_which_attempt_blocks_a_loop(self, scene):
        guilty, other = running = [echo.enqueue(), echo.enqueue()]
        for each in running:
            scene.starts(each)
        scene.tell_workers(*running, blocking=guilty)
        assert scene.codes(guilty) == ("blocks-loop", "running")
        found = scene.finds(guilty, "blocks-loop")
        assert found.sentence == "It blocks its loop for 13 s, and one other attempt waits for it."
        found = scene.finds(other, "loop-blocked")
        assert found.sentence == f"Its loop is blocked for 13 s by tests.echo {guilty.uuid}."
        assert str(guilty.uuid) in found.helps.command
        scene.apply(found)
        scene.finds(guilty, "cancel-asked")

    @pytest.mark.slow
    def test_explain_reports_a_run_that_is_longer_than_usual(self, scene):
        """With a hundred past runs a quantile is used, with ten the longest; three are too few."""

        def run_for_an_hour(others):
            """Return an Instance that has run for an hour, after others that ended within 2 s."""
            scene.run(others, timedelta(seconds=2))
            one = echo.enqueue()
            scene.starts(one)
            Instance.objects.filter(pk=one.pk).update(started=get_store().now() - HOUR)
            scene.row().update(seen=get_store().now())  # so many runs may take long
            return one

        scene.finds(run_for_an_hour(3), "running", is_slow=False)
        one = run_for_an_hour(7)
        found = scene.finds(one, "running", is_slow=True)
        assert "longer than the last 10 of its Type" in found.sentence
        scene.apply(found)  # hands it back
        scene.move(one, Event.RELEASE)
        assert scene.starts(one)
        found = scene.finds(run_for_an_hour(100), "running")
        assert "longer than 99 of 100 of its Type" in found.sentence

    def test_explain_reports_the_daemon_that_has_claimed_a_task(self, scene, world):
        """The daemon can be late or lost."""
        one = echo.enqueue()
        scene.host.claim()
        scene.apply(scene.finds(one, "claimed", daemon="host:1"))
        scene.move(one, Event.RELEASE)
        assert scene.starts(one)
        scene.row().update(seen=get_store().now() - timedelta(minutes=1))
        assert scene.codes(one) == ("holder-late", "running")
        scene.host.lose_lease()
        found = scene.finds(one, "holder-lost", others=0)
        assert scene.codes(one) == ("holder-lost",)
        assert found.helps.command == "manage.py atpd"
        other = world.host("tests.echo", name="other")
        assert scene.finds(one, "holder-lost").until is not None
        world.store.daemons.sweep(daemon=other.uuid)
        assert scene.starts(one, other)


class TestControl:
    def test_explain_reports_only_gates_that_hold_the_task(self, scene):
        """Gates of other Types and lanes are not reported."""
        one = echo.using(collection="a").enqueue()
        for place in (("tests.add",), ("tests.echo", "b"), ("tests.echo", "")):
            queue.hold(*place)
        assert scene.codes(one) == ("ready",)
        for scope in ((), ("tests.echo",), ("tests.echo", "a")):
            queue.hold(*scope, reason="upgrade", until=HOUR, by="ann")
            assert not scene.starts(one)
            found = scene.finds(one, "gate", who="ann")
            assert found.until > found.since
            scene.apply(found)
        assert scene.starts(one)

    def test_explain_reports_a_limit_that_is_full(self, scene):
        """The limit can be that of a Type, of one lane, or of each lane."""
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
            found = scene.finds(one, code, limit=1)
            scene.finds(other, code_of_other)
            scene.apply(found)
            assert scene.codes(one) == ("ready",)
        assert scene.starts(one)

    def test_explain_reports_a_rate_that_is_used_up(self, scene):
        queue.limit("tests.echo", rate="1/h")
        scene.starts(echo.enqueue())
        one = echo.enqueue()
        found = queue.explain(one)
        reason = found.reasons[0]
        assert reason.code == "rate"
        assert found.starts.low >= reason.until - found.looked_at
        scene.apply(reason)
        assert scene.starts(one)


class TestDue:
    def test_explain_reports_a_due_time_a_retry_and_a_deferral(self, scene):
        one = echo.using(run_after=HOUR).enqueue()
        found = queue.explain(one)
        assert found.codes == ("not-due",)
        assert found.starts.low > timedelta(minutes=59)
        scene.apply(found.reasons[0])
        assert scene.starts(one)
        one = add.enqueue(1)
        scene.starts(one)
        message = "Traceback (most recent call last):\nOSError: 503"
        scene.move(one, Event.RETRY, delay=HOUR, message=message, level=logging.WARNING)
        found = scene.finds(one, "retry")
        assert found.facts == {"retry": 1, "of": 2, "error": "OSError: 503"}
        assert found.sentence.startswith('Retry 1 of 2 after "OSError: 503" is due in ')
        scene.apply(found)
        assert scene.starts(one)
        scene.move(one, Event.DEFER, delay=HOUR)
        scene.apply(scene.finds(one, "deferred"))
        assert scene.starts(one)

    def test_explain_reports_the_node_that_a_task_waits_for(self, scene):
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

    def test_explain_reports_a_run_that_waits_for_an_earlier_one_of_its_schedule(self, scene):
        queue.create_schedule("tide", "tests.echo", every=HOUR, overlap="queue", by="ann")
        first, second = scene.plan("tide"), scene.plan("tide")
        found = queue.explain(second)
        assert found.codes == ("in-line",)
        assert (found.starts.is_open, found.starts.why) == (True, "in-line")
        assert scene.starts(first)
        scene.move(first, Event.FINISH)
        assert scene.starts(second)


class TestServing:
    def test_explain_reports_a_type_that_no_daemon_serves(self, scene, world):
        """The last daemon that served the Type is named, even if its row was deleted."""
        before = scene.run()
        one = echo.enqueue()
        scene.host.lose_lease()
        world.host("tests.add", name="other")
        found = queue.explain(one)
        assert found.codes == ("unserved",)
        assert "The last daemon that served it was host:1." in found.reasons[0].sentence
        assert found.starts.why == "unserved"
        world.store.daemons.leave(scene.host.uuid)
        who = before.log.filter(kind=Event.CLAIM).get().who
        scene.finds(one, "unserved", last=who)
        assert scene.starts(one, world.host("tests.echo", name="new"))

    def test_explain_reports_a_module_that_daemons_do_not_import(self, scene, monkeypatch):
        """Another daemon would not help, so the suggested action is an import."""
        monkeypatch.setattr(registry, "_types", dict(registry._types))
        declared = task_type("tests.elsewhere")(_of_another_module)
        found = scene.finds(declared.enqueue(), "unserved", module=__name__)
        assert found.sentence.endswith(f"and what these import; it is declared in {__name__}.")
        assert found.helps.label == f"Import {__name__} in a tasks.py, and restart the daemon"

    def test_explain_reports_quiet_daemons_and_busy_workers(self, scene, world):
        one = echo.enqueue()
        queue.command(scene.host.uuid, "quiet")
        scene.apply(scene.finds(one, "quiet"))
        assert scene.codes(one) == ("ready",)
        assert scene.starts(one)
        running = [echo.enqueue(), add.enqueue(1)]
        scene.starts(running[0])
        one = echo.enqueue()
        scene.tell_workers(*running)
        found = scene.finds(one, "workers-busy", types={"tests.echo": 1, "tests.add": 1})
        assert found.facts["longest"]["instance"] == str(running[1].uuid)
        other = world.host("tests.echo", name="other")
        scene.tell_workers(count=1, host=other)
        assert scene.codes(one) == ("ready",)
        assert scene.starts(one, other)


class TestTurn:
    def test_explain_reports_tasks_that_are_ahead_in_the_queue(self, scene):
        """A higher priority moves the Task to the front. Only due Tasks count."""
        echo.using(run_after=HOUR, priority=9).enqueue()
        assert scene.codes(echo.using(priority=7).enqueue()) == ("ready",)
        echo.enqueue_many([{}] * 3)
        one = echo.enqueue()
        scene.finds(one, "behind", by_priority=1)
        assert queue.explain(one).ahead == 4
        queue.change(one, priority=8)
        assert scene.codes(one) == ("ready",)
        [case] = scene.host.claim(limit=1)
        assert case.instance == one.pk

    def test_explain_reports_that_a_lost_task_runs_alone(self, scene):
        one = echo.enqueue()
        scene.starts(one)
        scene.move(one, Event.EXPIRE)
        scene.finds(one, "alone", lost=1)
        assert scene.starts(one)

    @pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite tells nothing of them")
    @pytest.mark.django_db(transaction=True)
    def test_explain_reports_a_transaction_that_locks_the_task(
        self, monkeypatch, transactional_db, world
    ):
        world.host("tests.echo")
        queue.register(echo)
        one, other = echo.enqueue(), echo.enqueue()
        rows = Task.objects.filter(pk=one.pk)

        def blamed(code, take):
            """Return the explanations of both Instances while a transaction holds this lock."""
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


def test_explain_reports_several_causes_in_order(scene):
    one = echo.using(run_after=HOUR).enqueue()
    queue.hold("tests.echo")
    queue.limit("tests.echo", rate="1/h")
    scene.row().update(mode="quiet", request="quiet")
    assert scene.codes(one) == ("gate", "not-due", "quiet")
    found = queue.explain(one)
    assert found.starts.is_open
    assert found.starts.why == "gate"

"""The facts of a drain, for each kind of TestCase: :mod:`.test_cases` runs them."""

import os
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import Group
from django.core import mail
from django.db import connection, transaction

from atp import Graph
from atp.models import Daemon, Instance, Task
from atp.testing import EndlessDrain, QueueMixin
from atp.verbs import instances as queue
from tests.app import tasks_testing as tasks


class Drains(QueueMixin):
    """What holds inside a test's transaction, and without one."""

    def test_what_is_due_runs_and_is_told(self):
        tasks.group.enqueue(name="a")
        [run] = self.atp.drain()
        assert (run.type, run.attempt, run.state, run.reason) == ("kit.group", 1, "FINISHED", "")
        assert run.response == Group.objects.get().pk
        assert "making a" in run.log
        assert run.instance.state == "FINISHED"
        assert run.error is None

    def test_nothing_is_left_of_its_daemon(self):
        # A daemon that was killed may have left a folder of locks.
        folders = Path(settings.SCRATCH_DIR), Path(f"{connection.settings_dict['NAME']}-atpd")
        tasks.group.enqueue(name="a")
        files = [sorted(folder.glob("**/*")) for folder in folders]
        self.atp.drain()
        assert not Daemon.objects.exists()
        assert not Task.objects.exists()
        assert [sorted(folder.glob("**/*")) for folder in folders] == files

    def test_only_the_types_that_are_named(self):
        tasks.group.enqueue(name="a")
        tasks.mail.enqueue(to="b@example.com")
        assert [run.type for run in self.atp.drain(tasks.mail)] == ["kit.mail"]
        assert [run.type for run in self.atp.drain("kit.group")] == ["kit.group"]

    def test_mail_is_in_the_outbox(self):
        tasks.mail.enqueue(to="b@example.com")
        self.atp.drain()
        assert [message.to for message in mail.outbox] == [["b@example.com"]]

    def test_what_it_enqueues_is_drained(self):
        tasks.chain.enqueue(left=3)
        assert len(self.atp.drain()) == 4

    def test_what_is_done_is_undone_when_its_graph_fails(self):
        with Graph("saga") as graph:
            done = graph.add(tasks.mail, to="a@example.com", undo=(tasks.group, {"name": "a"}))
            graph.add(tasks.fatal, after=done)
        runs = self.atp.drain(raises=False)
        assert [run.type for run in runs] == ["kit.mail", "kit.fatal", "kit.group"]

    def test_an_endless_chain_is_refused(self):
        tasks.chain.enqueue(left=-1)
        with pytest.raises(EndlessDrain, match=r"10 attempts were run.*kit\.chain"):
            self.atp.drain(most=10)
        assert not Daemon.objects.exists()

    def test_the_handlers_own_error_is_raised(self):
        tasks.refused.enqueue(name="kept")
        with pytest.raises(tasks.Refused, match="no") as raised:
            self.atp.drain()
        assert raised.traceback[-1].name == "refused"
        assert "attempt 1 of kit.refused" in raised.value.__notes__[0]
        assert Instance.objects.get().retries == 1
        # As in a worker, what it had written before is there.
        assert Group.objects.filter(name="kept").exists()

    def test_errors_are_told_if_they_are_not_raised(self):
        tasks.refused.enqueue()
        [run] = self.atp.drain(raises=False)
        assert run.state == "ACCEPTED"
        assert isinstance(run.error, tasks.Refused)

    def test_retries_are_not_waited_for(self):
        tasks.refused.enqueue()
        with pytest.raises(tasks.Refused):
            self.atp.drain(retries=True)
        [row] = self.atp.enqueued(tasks.refused)
        assert (row.state, row.reason, row.attempt) == ("FAILED", "ERROR", 3)

    def test_a_retry_that_is_asked_for_is_no_error(self):
        tasks.later.enqueue()
        assert [run.state for run in self.atp.drain()] == ["ACCEPTED"]
        assert self.atp.drain() == []
        self.atp.later(hours=2)
        assert [run.response for run in self.atp.drain()] == [2]

    def test_a_deferred_one_waits(self):
        tasks.deferred.enqueue()
        assert [run.state for run in self.atp.drain()] == ["ACCEPTED"]

    def test_fatal_is_raised(self):
        tasks.fatal.enqueue()
        with pytest.raises(tasks.Fatal, match="never"):
            self.atp.drain()
        assert self.atp.enqueued(tasks.fatal)[0].reason == "FATAL"

    def test_callbacks_run_at_the_commits_of_the_handler(self):
        tasks.on_commit.enqueue(name="a")
        assert [run.type for run in self.atp.drain()] == ["kit.on_commit", "kit.group"]

    def test_a_durable_block_is_allowed(self):
        tasks.durable.enqueue(name="a")
        [run] = self.atp.drain()
        assert run.state == "FINISHED"
        assert Group.objects.exists()

    def test_a_transaction_that_is_left_open_is_an_error(self):
        tasks.left_open.enqueue(name="a")
        [run] = self.atp.drain(raises=False)
        assert run.error is not None
        assert not Group.objects.exists()
        Group.objects.create(name="b")

    def test_what_the_database_refuses_is_an_error_and_no_more(self):
        tasks.doubled.enqueue(name="a")
        [run] = self.atp.drain(raises=False)
        assert type(run.error).__name__ == "IntegrityError"
        Group.objects.create(name="b")

    def test_what_is_refused_in_a_block_goes_on(self):
        tasks.caught_well.enqueue(name="a")
        [run] = self.atp.drain()
        assert run.response == "caught"

    def test_a_transactional_type_writes_both_or_nothing(self):
        """G7."""
        tasks.transactional.enqueue(name="a")
        tasks.transactional.enqueue(name="b", fails=True)
        runs = self.atp.drain(raises=False)
        assert {run.state for run in runs} >= {"FINISHED"}
        assert [group.name for group in Group.objects.all()] == ["a"]
        assert all("written" in run.log for run in runs)

    def test_twice_runs_each_handler_twice(self):
        """G2."""
        tasks.mail.enqueue(to="a@example.com")
        tasks.mail.enqueue(to="b@example.com")
        runs = self.atp.drain(twice=True)
        assert [run.state for run in runs] == ["ACCEPTED", "FINISHED"] * 2
        assert len(mail.outbox) == 4
        assert [row.restarts for row in self.atp.enqueued(tasks.mail)] == [1, 1]

    def test_twice_has_a_transactional_type_write_once(self):
        """G7."""
        tasks.transactional.enqueue(name="a")
        runs = self.atp.drain(twice=True)
        assert [run.state for run in runs] == ["ACCEPTED", "FINISHED"]
        assert Group.objects.count() == 1

    def test_lost_before_its_handler(self):
        tasks.mail.enqueue(to="a@example.com")
        assert [run.state for run in self.atp.drain(lose="before")] == ["ACCEPTED"]
        assert mail.outbox == []
        assert [run.attempt for run in self.atp.drain()] == [2]

    def test_lost_after_its_handler(self):
        tasks.mail.enqueue(to="a@example.com")
        assert [run.state for run in self.atp.drain(lose="after")] == ["ACCEPTED"]
        assert len(mail.outbox) == 1
        assert not Daemon.objects.exists()
        assert [run.attempt for run in self.atp.drain()] == [2]

    def test_a_cancel_reaches_the_handler(self):
        tasks.cancels_itself.enqueue()
        [run] = self.atp.drain()
        assert (run.state, run.reason) == ("FAILED", "CANCELLED")

    def test_files_and_progress(self):
        tasks.file.enqueue()
        [run] = self.atp.drain()
        assert [file["name"] for file in run.files] == ["file.txt"]
        assert not Path(run.response).exists()
        assert run.instance.progress == 1.0

    def test_it_is_running_while_it_runs_and_plans_as_the_test(self):
        tasks.state.enqueue()
        [run] = self.atp.drain()
        assert run.response == ["RUNNING", "on"][: len(run.response)]
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SHOW enable_seqscan")
                assert cursor.fetchone() == ("on",)

    def test_while_it_is_paused_others_run(self):
        tasks.waits.enqueue()
        runs = self.atp.drain()
        assert {run.type: run.state for run in runs} == {
            "kit.waits": "FINISHED",
            "kit.group": "FINISHED",
        }
        assert runs[0].response == "FINISHED"

    def test_what_is_not_kept_has_finished(self):
        tasks.nothing.enqueue()
        [run] = self.atp.drain()
        assert (run.state, run.instance) == ("FINISHED", None)

    def test_one_attempt(self):
        assert self.atp.work(tasks.group, name="a").state == "FINISHED"
        run = self.atp.work(tasks.later, attempt=2)
        assert (run.attempt, run.response) == (2, 2)

    def test_the_last_attempt_fails(self):
        run = self.atp.work(tasks.refused, attempt=3, raises=False)
        assert (run.state, run.reason) == ("FAILED", "ERROR")

    def test_inline(self):
        with self.atp.inline():
            row = tasks.group.enqueue(name="a")
            assert queue.get(row.uuid).state == "FINISHED"
            with transaction.atomic():
                other = tasks.group.enqueue(name="b")
                with transaction.atomic():
                    pass
                assert queue.get(other.uuid).state == "ACCEPTED"
            assert queue.get(other.uuid).state == "FINISHED"
        tasks.group.enqueue(name="c")
        assert [row.state for row in self.atp.enqueued(tasks.group)][-1] == "ACCEPTED"

    def test_inline_at_the_end_of_a_block_without_a_savepoint(self):
        """As those around the receivers of pre_delete and m2m_changed."""
        with self.atp.inline():
            with transaction.atomic(savepoint=False):
                with transaction.atomic():
                    row = tasks.group.enqueue(name="a")
                assert queue.get(row.uuid).state == "ACCEPTED"
            assert queue.get(row.uuid).state == "FINISHED"
        with transaction.atomic(savepoint=False), self.atp.inline():
            tasks.group.enqueue(name="b")

    def test_inline_runs_all_that_is_due_at_a_commit(self):
        def place_two():
            with self.atp.inline(), transaction.atomic():
                tasks.refused.enqueue()
                tasks.refused.enqueue()

        with pytest.raises(tasks.Refused):
            place_two()
        assert [row.attempt for row in self.atp.enqueued(tasks.refused)] == [1, 1]

    def test_inline_within_inline(self):
        with self.atp.inline():
            with self.atp.inline():
                pass
            row = tasks.group.enqueue(name="a")
            assert queue.get(row.uuid).state == "FINISHED"
        row = tasks.group.enqueue(name="b")
        assert queue.get(row.uuid).state == "ACCEPTED"

    def test_twice_is_once_too_often_where_nothing_is_restarted(self):
        tasks.once.enqueue()
        assert [(run.state, run.reason) for run in self.atp.drain(twice=True)] == [
            ("FAILED", "STALE")
        ]

    def test_inline_leaves_out_what_is_rolled_back(self):
        def roll_back():
            with transaction.atomic():
                tasks.group.enqueue(name="a")
                raise tasks.Refused

        with self.atp.inline(), pytest.raises(tasks.Refused):
            roll_back()
        assert "savepoint_commit" not in vars(connection)
        assert not Group.objects.exists()

    def test_inline_errors_reach_the_test_and_not_the_code(self):
        reached = []

        def place_order():
            with self.atp.inline():
                tasks.refused.enqueue()
                reached.append("the end")

        with pytest.raises(tasks.Refused):
            place_order()
        assert reached

    def test_a_handler_leaves_the_process_as_it_was(self):
        before = os.getcwd(), os.umask(0o022)
        tasks.messy.enqueue()
        self.atp.drain()
        assert (os.getcwd(), os.umask(before[1])) == (before[0], 0o022)
        assert tasks.TENANT.get() == "none"

    def test_a_handler_finds_no_context_variable_of_the_test(self):
        token = tasks.TENANT.set("of the test")
        try:
            tasks.seen.enqueue()
            [run] = self.atp.drain()
        finally:
            tasks.TENANT.reset(token)
        assert run.response == ["none", settings.LANGUAGE_CODE]

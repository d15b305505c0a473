"""Draining in Django's TestCase and TransactionTestCase, and which blocks count as a commit."""

import pytest
from django.contrib.auth.models import Group
from django.core import mail
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from atp import queue
from atp.models import Instance
from atp.testing import QueueMixin
from tests.app import tasks_testing as tasks


class Commits(QueueMixin):
    """Tests that hold both inside and outside a transaction of the test."""

    def test_drain_returns_runs_or_raises_the_error_of_the_handler(self):
        tasks.group.enqueue(name="a")
        [run] = self.atp.drain()
        assert (run.type, run.attempt, run.state, run.reason) == ("kit.group", 1, "FINISHED", "")
        assert run.response == Group.objects.get().pk
        assert "making a" in run.log
        assert run.instance.state == "FINISHED"
        assert run.error is None
        tasks.refused.enqueue(name="kept")
        with pytest.raises(tasks.Refused, match="no") as raised:
            self.atp.drain()
        assert raised.traceback[-1].name == "refused"
        assert "attempt 1 of kit.refused" in raised.value.__notes__[0]
        assert Instance.objects.latest("pk").retries == 1
        # As in a worker, what it had written before is there.
        assert Group.objects.filter(name="kept").exists()

    def test_a_handler_can_use_durable_transactions_and_on_commit(self):
        """A callback registered with ``on_commit()`` runs at the commit of the handler."""
        tasks.on_commit.enqueue(name="a")
        assert [run.type for run in self.atp.drain()] == ["kit.on_commit", "kit.group"]
        tasks.durable.enqueue(name="b")
        assert [run.state for run in self.atp.drain()] == ["FINISHED"]
        assert [group.name for group in Group.objects.order_by("name")] == ["a", "b"]

    def test_a_failing_handler_does_not_break_the_transaction_of_the_test(self):
        """The handler leaves a transaction open, or the database rejects a statement."""
        tasks.left_open.enqueue(name="a")
        [run] = self.atp.drain(raises=False)
        assert run.error is not None
        assert not Group.objects.exists()
        tasks.doubled.enqueue(name="a")
        [run] = self.atp.drain(raises=False)
        assert type(run.error).__name__ == "IntegrityError"
        tasks.caught_well.enqueue(name="c")
        [run] = self.atp.drain()
        assert run.response == "caught"
        Group.objects.create(name="b")

    def test_a_transactional_type_writes_all_or_nothing(self):
        """A failing handler leaves no row, but its log messages are kept (G7)."""
        tasks.transactional.enqueue(name="a")
        tasks.transactional.enqueue(name="b", fails=True)
        runs = self.atp.drain(raises=False)
        assert {run.state for run in runs} >= {"FINISHED"}
        assert [group.name for group in Group.objects.all()] == ["a"]
        assert all("written" in run.log for run in runs)

    def test_drain_with_the_option_twice_runs_each_handler_again(self):
        """The second run simulates a lost attempt (G2). A transactional Type writes once (G7)."""
        tasks.mail.enqueue(to="a@example.com")
        tasks.mail.enqueue(to="b@example.com")
        runs = self.atp.drain(twice=True)
        assert [run.state for run in runs] == ["ACCEPTED", "FINISHED"] * 2
        assert len(mail.outbox) == 4
        assert [row.restarts for row in self.atp.enqueued(tasks.mail)] == [1, 1]
        tasks.transactional.enqueue(name="a")
        runs = self.atp.drain(twice=True)
        assert [run.state for run in runs] == ["ACCEPTED", "FINISHED"]
        assert Group.objects.count() == 1

    def test_other_tasks_run_while_one_is_paused(self):
        tasks.waits.enqueue()
        first, other = self.atp.drain()
        assert (first.type, first.state, first.response) == ("kit.waits", "FINISHED", "FINISHED")
        assert (other.type, other.state) == ("kit.group", "FINISHED")

    def test_inline_runs_tasks_at_the_outermost_commit(self):
        with self.atp.inline():
            with self.atp.inline():
                pass
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

    def test_inline_runs_tasks_when_a_block_without_a_savepoint_ends_successfully(self):
        """Django uses such blocks around the receivers of pre_delete and m2m_changed."""

        def roll_back():
            with transaction.atomic():
                tasks.group.enqueue(name="a")
                raise tasks.Refused

        with self.atp.inline(), pytest.raises(tasks.Refused):
            roll_back()
        assert "savepoint_commit" not in vars(connection)
        assert self.atp.drain() == []
        with self.atp.inline():
            with transaction.atomic(savepoint=False):
                with transaction.atomic():
                    row = tasks.group.enqueue(name="a")
                assert queue.get(row.uuid).state == "ACCEPTED"
            assert queue.get(row.uuid).state == "FINISHED"
        with transaction.atomic(savepoint=False), self.atp.inline():
            tasks.group.enqueue(name="b")


class InTransaction(Commits, TestCase):
    pass


class WithoutTransaction(Commits, TransactionTestCase):
    pass


@pytest.mark.django_db
def test_inline_runs_nothing_if_a_block_without_a_savepoint_fails_or_ends_later(atp):
    """Django marks the transaction around a block that failed for rollback."""
    made = []
    with transaction.atomic(savepoint=False):
        with atp.inline():
            made.append(tasks.group.enqueue(name="a"))
        assert connection.savepoint_ids[-1] is None
    assert queue.get(made[0].uuid).state == "ACCEPTED"

    def fail():
        with transaction.atomic(savepoint=False):
            made.append(tasks.group.enqueue(name="a"))
            raise tasks.Refused

    with atp.inline():
        with pytest.raises(tasks.Refused):
            fail()
        assert connection.needs_rollback
        transaction.set_rollback(False)
        assert "savepoint_commit" not in vars(connection)
        assert {queue.get(each.uuid).state for each in made} == {"ACCEPTED"}


@pytest.mark.django_db
def test_an_error_of_a_task_that_runs_at_a_commit_reaches_the_test(atp):
    reached = []

    def place_two():
        with atp.inline():
            with transaction.atomic():
                tasks.refused.enqueue()
                tasks.refused.enqueue()
            reached.append("the end")

    with pytest.raises(tasks.Refused):
        place_two()
    assert reached
    assert [row.attempt for row in atp.enqueued(tasks.refused)] == [1, 1]

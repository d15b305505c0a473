"""Draining in Django's TestCase and TransactionTestCase, and what counts as a commit in them."""

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
    """What holds inside a test's transaction, and without one."""

    def test_what_is_due_runs_and_is_told(self):
        tasks.group.enqueue(name="a")
        [run] = self.atp.drain()
        assert (run.type, run.attempt, run.state, run.reason) == ("kit.group", 1, "FINISHED", "")
        assert run.response == Group.objects.get().pk
        assert "making a" in run.log
        assert run.instance.state == "FINISHED"
        assert run.error is None

    def test_the_handlers_own_error_is_raised(self):
        tasks.refused.enqueue(name="kept")
        with pytest.raises(tasks.Refused, match="no") as raised:
            self.atp.drain()
        assert raised.traceback[-1].name == "refused"
        assert "attempt 1 of kit.refused" in raised.value.__notes__[0]
        assert Instance.objects.get().retries == 1
        # As in a worker, what it had written before is there.
        assert Group.objects.filter(name="kept").exists()

    def test_a_handler_has_transactions_of_its_own(self):
        """Also durable ones; callbacks run at its commits."""
        tasks.on_commit.enqueue(name="a")
        assert [run.type for run in self.atp.drain()] == ["kit.on_commit", "kit.group"]
        tasks.durable.enqueue(name="b")
        assert [run.state for run in self.atp.drain()] == ["FINISHED"]
        assert [group.name for group in Group.objects.order_by("name")] == ["a", "b"]

    def test_what_a_handler_breaks_is_its_own_error_and_no_more(self):
        """A transaction that it leaves open, and what the database refuses."""
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

    def test_a_transactional_type_writes_both_or_nothing(self):
        """G7."""
        tasks.transactional.enqueue(name="a")
        tasks.transactional.enqueue(name="b", fails=True)
        runs = self.atp.drain(raises=False)
        assert {run.state for run in runs} >= {"FINISHED"}
        assert [group.name for group in Group.objects.all()] == ["a"]
        assert all("written" in run.log for run in runs)

    def test_twice_runs_each_handler_twice(self):
        """G2. G7: but a transactional Type writes once."""
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

    def test_while_it_is_paused_others_run(self):
        tasks.waits.enqueue()
        first, other = self.atp.drain()
        assert (first.type, first.state, first.response) == ("kit.waits", "FINISHED", "FINISHED")
        assert (other.type, other.state) == ("kit.group", "FINISHED")

    def test_inline(self):
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

    def test_inline_leaves_out_what_is_rolled_back(self):
        def roll_back():
            with transaction.atomic():
                tasks.group.enqueue(name="a")
                raise tasks.Refused

        with self.atp.inline(), pytest.raises(tasks.Refused):
            roll_back()
        assert "savepoint_commit" not in vars(connection)
        assert self.atp.drain() == []


class InTransaction(Commits, TestCase):
    pass


class WithoutTransaction(Commits, TransactionTestCase):
    pass


@pytest.mark.django_db
def test_a_block_without_a_savepoint_that_fails(atp):
    """Django marks the transaction around it, and nothing runs."""
    made = []

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
        assert queue.get(made[0].uuid).state == "ACCEPTED"


@pytest.mark.django_db
def test_inline_that_ends_within_a_block_without_a_savepoint(atp):
    with transaction.atomic(savepoint=False):
        with atp.inline():
            made = tasks.group.enqueue(name="a")
        assert connection.savepoint_ids[-1] is None
    assert queue.get(made.uuid).state == "ACCEPTED"


@pytest.mark.django_db
def test_all_that_is_due_runs_at_a_commit_and_its_errors_reach_the_test_alone(atp):
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

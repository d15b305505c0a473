"""What counts as a commit inside a transaction that is never committed."""

import pytest
from django.db import connection, transaction

from atp import queue
from tests.app import tasks_testing as tasks

pytestmark = pytest.mark.django_db


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


def test_inline_that_ends_within_a_block_without_a_savepoint(atp):
    with transaction.atomic(savepoint=False):
        with atp.inline():
            made = tasks.group.enqueue(name="a")
        assert connection.savepoint_ids[-1] is None
    assert queue.get(made.uuid).state == "ACCEPTED"

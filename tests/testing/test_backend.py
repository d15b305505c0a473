"""InlineBackend runs tasks of ``django.tasks`` in tests."""

import pytest
from django.db import connection, transaction

from atp.backend.frameworks import TaskResultStatus
from atp.models import Instance
from tests.backend import tasks

INLINE = {
    "default": {
        "BACKEND": "atp.testing.InlineBackend",
        "QUEUES": [],
        "OPTIONS": {"modules": ["tests.backend.tasks"], "types": {"*": {"backoff": 0}}},
    }
}
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def inline(settings):
    settings.TASKS = INLINE


def test_inline_backend_runs_a_task_when_it_is_enqueued():
    result = tasks.add.enqueue(1, 2)
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 3)
    result = tasks.fails.enqueue("went wrong")
    assert result.status == TaskResultStatus.FAILED
    assert result.errors[0].exception_class is ValueError
    # Without retention nothing is left to read a result from.
    assert tasks.unkept.enqueue().status == TaskResultStatus.READY
    assert Instance.objects.count() == 2


def test_methods_of_the_kit_accept_django_tasks_like_types(atp):
    """Options of ``using()`` are respected."""
    tasks.send.enqueue("ann")
    atp.assert_enqueued(tasks.send, "ann", priority=7, collection="letters")
    atp.refute_enqueued(tasks.send.using(priority=9), "ann")
    run = atp.work(tasks.send.using(queue_name="default", priority=2), "bob")
    assert (run.instance.priority, run.instance.collection) == (2, "")
    # A task that an inline task enqueues does not run inside it.
    with transaction.atomic():
        tasks.parent.enqueue(1)
        runs = atp.drain()
    assert [run.type.rpartition(".")[2] for run in runs] == ["parent", "add"]


@pytest.mark.parametrize(
    "in_transaction", [True, pytest.param(False, marks=pytest.mark.django_db(transaction=True))]
)
def test_inline_backend_runs_a_task_at_the_commit(in_transaction):
    assert connection.in_atomic_block == in_transaction
    with transaction.atomic():
        result = tasks.add.enqueue(1, 2)
        assert result.status == TaskResultStatus.READY
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL

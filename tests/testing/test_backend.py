"""InlineBackend: ``django.tasks`` in tests."""

import pytest
from django.contrib.auth.models import Group
from django.db import transaction
from django.test import override_settings

from atp.backend.frameworks import TaskResultStatus
from tests.backend import tasks

INLINE = {
    "default": {
        "BACKEND": "atp.testing.InlineBackend",
        "QUEUES": [],
        "OPTIONS": {"modules": ["tests.backend.tasks"], "types": {"*": {"backoff": 0}}},
    }
}
pytestmark = [pytest.mark.django_db, pytest.mark.each_database]


@pytest.fixture(autouse=True)
def inline():
    with override_settings(TASKS=INLINE):
        yield


def test_a_task_has_ended_when_it_is_enqueued():
    result = tasks.add.enqueue(1, 2)
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 3)


def test_an_error_stands_in_the_result():
    result = tasks.fails.enqueue("went wrong")
    assert result.status == TaskResultStatus.FAILED
    assert result.errors[0].exception_class is ValueError


def test_it_runs_at_the_commit():
    with transaction.atomic():
        result = tasks.add.enqueue(1, 2)
        assert result.status == TaskResultStatus.READY
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL


@pytest.mark.django_db(transaction=True)
def test_at_the_commit_without_a_transaction_of_the_test():
    with transaction.atomic():
        result = tasks.add.enqueue(1, 2)
        assert result.status == TaskResultStatus.READY
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert not Group.objects.exists()

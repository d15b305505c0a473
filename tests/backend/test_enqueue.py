"""Enqueueing through django.tasks."""

from datetime import datetime, timedelta

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.utils import timezone

from atp import queue
from atp.backend.frameworks import Task, TaskResultStatus, error
from atp.exceptions import DuplicateIdentifier, InvalidInputs, TooLarge
from atp.models import Instance

from . import tasks
from .receivers import receiving

pytestmark = pytest.mark.django_db


@pytest.fixture
def told():
    """The results that the signal ``task_enqueued`` was sent with."""
    seen = []

    def receive(sender, task_result, **kwargs):
        seen.append(task_result)

    with receiving(enqueued=receive):
        yield seen


@pytest.mark.django_db(transaction=True)
def test_enqueue_creates_an_instance(told):
    result = tasks.send.enqueue("ann", subject="hello")
    instance = queue.get(result.id)
    assert instance.type.identifier == "tests.backend.tasks.send"
    assert (instance.state, instance.collection, instance.priority) == ("ACCEPTED", "letters", 7)
    assert (result.status, result.enqueued_at) == (TaskResultStatus.READY, instance.created)
    assert (result.args, result.kwargs) == (["ann"], {"subject": "hello"})
    assert told == [result]
    # The default queue is no collection.
    assert queue.get(tasks.add.enqueue(1).id).collection == ""
    # ``using(backend=…)`` gives a task that was declared for another backend.
    standard = {"priority": 0, "backend": "default", "queue_name": "default", "run_after": None}
    other = Task(func=tasks.nothing.func, **standard)
    assert queue.get(other.enqueue(5).id).type.identifier == "tests.backend.tasks.nothing"
    result = async_to_sync(tasks.add.aenqueue)(1, second=2)
    assert queue.inputs(queue.get(result.id)).value == {"*": [1], "second": 2}
    assert tasks.add.get_result(result.id) == result


def test_enqueue_passes_options_to_the_instance():
    """An enqueue that is rolled back leaves no result (G7)."""
    later = timezone.now() + timedelta(hours=1)
    result = tasks.add.using(
        run_after=later, priority=-5, identifier="a", start_before=later + timedelta(hours=1)
    ).enqueue(1)
    instance = queue.get(type="tests.backend.tasks.add", identifier="a")
    assert str(instance.uuid) == result.id
    assert (instance.priority, queue.task(instance).due_at) == (-5, later)
    assert instance.start_before == later + timedelta(hours=1)
    with transaction.atomic():
        result = tasks.add.enqueue(1)
        transaction.set_rollback(True)
    with pytest.raises(error("TaskResultDoesNotExist"), match=result.id):
        tasks.add.get_result(result.id)


def test_enqueue_rejects_invalid_arguments(told):
    """The arguments are checked before anything is written (G13)."""
    for args, kwargs, kind, words in (
        ((datetime(2030, 1, 1),), {}, TypeError, "Unsupported type"),
        ((), {"first": {1, 2}}, TypeError, "Unsupported type"),
        ((), {}, TypeError, "missing a required argument: 'first'"),
        ((1,), {"secnd": 2}, InvalidInputs, "Did you mean 'second'?"),
        (("x" * 2_000_000,), {}, TooLarge, "the limit is"),
    ):
        with pytest.raises(kind, match=words):
            tasks.add.enqueue(*args, **kwargs)
    assert not Instance.objects.exists()
    assert told == []


def test_a_duplicate_identifier_is_refused_unless_the_option_existing_is_return(told, world):
    task = tasks.add.using(identifier="a")
    first = task.enqueue(1)
    with pytest.raises(DuplicateIdentifier):
        task.enqueue(1)
    existing = task.using(existing="return")
    assert existing.enqueue(1) == first == tasks.add.get_result(first.id)
    assert len(told) == 1
    # Also where what it finds has ended.
    host = world.host("tests.backend.tasks.add")
    [case] = host.claim()
    host.move(case, "start", "finish")
    assert existing.enqueue(1).status == TaskResultStatus.SUCCESSFUL

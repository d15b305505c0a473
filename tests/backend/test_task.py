"""ATPTask: the parameters of its Type, and the options of an enqueue."""

import pickle
from datetime import UTC, datetime, timedelta

import django
import pytest

from atp import on_failed, queue, task_type
from atp.backend import ATPTask, task
from atp.backend.frameworks import error
from atp.exceptions import InvalidType
from atp.operations.registry import registry

from ..app.tasks_hooks import hook
from . import tasks

InvalidTask = error("InvalidTask")
needs_parameters = pytest.mark.skipif(
    django.VERSION[:2] == (6, 0), reason="@task of Django 6.0 takes no parameters of a backend"
)


@pytest.fixture
def function():
    """A function of this module that is not a task yet."""
    yield fresh
    task._declared.pop(f"{__name__}.fresh", None)
    registry.remove(f"{__name__}.fresh")


def fresh(number=1):
    """Return the number."""
    return number


def test_a_task_declares_a_type():
    """The context is not one of the arguments of the Type."""
    found = registry.get("tests.backend.tasks.send")
    assert isinstance(tasks.send, ATPTask)
    assert list(found.signature.parameters) == ["user", "subject", "more"]
    assert found.handler_path == "tests.backend.tasks.send"
    assert found.__doc__ is None
    assert list(registry.get("tests.backend.tasks.who").signature.parameters) == ["number"]
    # It can also be called in this process.
    assert (tasks.add.call(1, second=2), tasks.later.call(1)) == (3, 2)


@pytest.mark.django_db
@needs_parameters
def test_a_task_runs_instances_enqueued_under_its_former_name(function, atp):
    task_type("former.fresh")(lambda context, number: number).enqueue(4)
    registry.remove("former.fresh")
    made = tasks.task(formerly=["former.fresh"])(function)
    found = task.find("former.fresh")
    assert found.task is made
    assert "former.fresh" not in task.paths()
    queue.register(found.task_type)
    assert [run.response for run in atp.drain()] == [4]


@needs_parameters
def test_a_task_can_have_hooks_but_cannot_be_a_hook(function):
    """A hook has inputs by name, but a task also accepts positional arguments."""
    given = {"timeout": None, "max_retries": 4, "transactional": True, "on_failed": hook}
    made = tasks.task(**given)(function)
    found = registry.get(f"{__name__}.fresh")
    assert (found.timeout, found.max_retries, found.transactional) == (None, 4, True)
    [entry] = found.registration().hooks
    assert entry == {"on": "on_failed", "type": "chaos.hook"}
    with pytest.raises(InvalidType, match=r"^@on_failed: 'tests.+send' is a task of django"):
        on_failed("dem.*")(registry.get("tests.backend.tasks.send"))
    assert made.parameters == given


def test_invalid_parameters_or_names_declare_nothing(function):
    for parameters, words in (
        ({"timeout": -1}, "timeout=-1 is out of range"),
        ({"rate": "often"}, "rate"),
        ({"backoff": 9, "backoff_max": 1}, "is longer than"),
    ):
        with pytest.raises(InvalidTask, match=words):
            ATPTask(func=function, **parameters)
    with pytest.raises(TypeError, match="timout"):
        ATPTask(func=function, timout=1)
    assert f"{__name__}.fresh" not in registry
    function.__module__, module = "ünmöglich", function.__module__
    try:
        with pytest.raises(InvalidTask, match="an identifier is"):
            ATPTask(func=function)
    finally:
        function.__module__ = module


def test_declaring_a_function_twice_with_other_parameters_is_rejected(function):
    first = ATPTask(func=function, timeout=5)
    assert ATPTask(func=function, timeout=5, priority=3).priority == 3
    with pytest.raises(InvalidTask, match=r"declared twice.* First: timeout=5\. Now: timeout=6"):
        ATPTask(func=function, timeout=6)
    assert first.using(priority=1).parameters == {"timeout": 5}


def test_the_method_using_accepts_enqueue_options_but_no_type_parameters():
    soon = timedelta(minutes=5)
    task = tasks.add.using(identifier="a", existing="return", start_before=soon, priority=3)
    assert task.options == {"identifier": "a", "existing": "return", "start_before": soon}
    assert (task.priority, tasks.add.options) == (3, {})
    for changes, kind, words in (
        ({"timeout": 1}, TypeError, r"pass it to the decorator: @task\(timeout=…\)"),
        ({"collection": 1}, TypeError, "Here it is called 'queue_name'"),
        ({"identifer": 1}, TypeError, "Did you mean 'identifier'?"),
        ({"prioity": 1}, TypeError, "Did you mean 'priority'?"),
        ({"queue_name": "two\nlines"}, InvalidTask, "collection"),
        ({"queue_name": "x" * 201}, InvalidTask, "collection"),
        ({"identifier": ""}, InvalidTask, "identifier must not be empty"),
        ({"existing": "redrve"}, InvalidTask, r"Did you mean 'redrive'\?"),
        ({"priority": 101}, InvalidTask, "priority must be a whole number"),
        ({"run_after": datetime(2030, 1, 1)}, InvalidTask, "aware"),
    ):
        with pytest.raises(kind, match=words):
            tasks.add.using(**changes)


@pytest.mark.skipif(django.VERSION < (6, 1), reason="tasks can be pickled since Django 6.1")
def test_a_task_survives_pickling():
    task = tasks.add.using(identifier="a", run_after=datetime(2030, 1, 1, tzinfo=UTC))
    assert pickle.loads(pickle.dumps(task)) == task

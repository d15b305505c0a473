"""ATPTask: the parameters of a Type, and the options of an enqueue."""

import pickle
from datetime import UTC, datetime, timedelta

import django
import pytest

from atp import on_failed
from atp.authoring.context import Context
from atp.backend import ATPBackend, ATPTask, declared
from atp.backend.frameworks import error
from atp.backend.task import OPTIONS, PARAMETERS
from atp.daemon.shared.outcome import Kind
from atp.daemon.worker import execution
from atp.exceptions import InvalidType
from atp.verbs.registry import registry

from ..app.tasks_hooks import hook
from ..samples import claimed
from . import tasks

InvalidTask = error("InvalidTask")
needs_parameters = pytest.mark.skipif(
    django.VERSION[:2] == (6, 0), reason="@task of Django 6.0 takes no parameters of a backend"
)


@pytest.fixture
def function():
    """A function of this module that is no task yet."""
    yield fresh
    declared._declared.pop(f"{__name__}.fresh", None)
    registry.remove(f"{__name__}.fresh")


def fresh(number=1):
    """Answer."""
    return number


def test_a_task_is_a_type():
    found = registry.get("tests.backend.tasks.send")
    assert isinstance(tasks.send, ATPTask)
    assert list(found.signature.parameters) == ["user", "subject", "more"]
    assert found.handler_path == "tests.backend.tasks.send"
    assert found.__doc__ is None


def test_the_backend_supports_all_that_there_is():
    names = [name for name in vars(ATPBackend) if name.startswith("supports_")]
    assert sorted(names) == [
        *("supports_async_task", "supports_defer", "supports_get_result", "supports_priority")
    ]
    assert all(getattr(ATPBackend, name) is True for name in names)


def test_a_context_is_no_argument():
    assert list(registry.get("tests.backend.tasks.who").signature.parameters) == ["number"]


@needs_parameters
def test_parameters_of_a_type(function):
    made = tasks.task(timeout=None, max_retries=4, transactional=True)(function)
    declared = registry.get(f"{__name__}.fresh")
    assert (declared.timeout, declared.max_retries, declared.transactional) == (None, 4, True)
    assert made.parameters == {"timeout": None, "max_retries": 4, "transactional": True}


@needs_parameters
def test_what_waits_under_a_former_name_is_run(function, tmp_path):
    made = tasks.task(formerly=["former.fresh"])(function)
    old = claimed(1, "former.fresh")._replace(data='{"*":[4]}')
    told = {"report": lambda *report: None, "interruption": lambda: None, "worker": "host:1"}
    outcome = execution.run(old, Context(old, scratch_root=tmp_path, **told))
    assert (outcome.kind, outcome.response.data) == (Kind.FINISHED, b"4")
    assert declared.find("former.fresh").task is made
    assert "former.fresh" not in declared.paths()


@needs_parameters
def test_a_task_has_hooks_and_is_none(function):
    """What a hook is given has names, and a task keeps what was given by position."""
    made = tasks.task(on_failed=hook)(function)
    [entry] = registry.get(f"{__name__}.fresh").registration().hooks
    assert entry == {"on": "on_failed", "type": "chaos.hook"}
    with pytest.raises(InvalidType, match=r"^@on_failed: 'tests.+send' is a task of django"):
        on_failed("dem.*")(registry.get("tests.backend.tasks.send"))
    assert made.parameters == {"on_failed": hook}


def test_a_task_class_takes_every_parameter_of_a_type():
    assert "timeout" in PARAMETERS
    assert "collection" not in PARAMETERS
    assert set(OPTIONS) >= {"identifier", "existing", "start_before", "created_by"}


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"timeout": -1}, "timeout=-1 is out of range"),
        ({"rate": "often"}, "rate"),
        ({"backoff": 9, "backoff_max": 1}, "is longer than"),
    ],
)
def test_wrong_parameters(function, parameters, words):
    """G13: a declaration that makes no sense is refused, and declares nothing."""
    with pytest.raises(InvalidTask, match=words):
        ATPTask(func=function, **parameters)
    assert f"{__name__}.fresh" not in registry


def test_an_unknown_parameter(function):
    with pytest.raises(TypeError, match="timout"):
        ATPTask(func=function, timout=1)


def test_a_function_is_declared_once(function):
    first = ATPTask(func=function, timeout=5)
    assert ATPTask(func=function, timeout=5, priority=3).priority == 3
    with pytest.raises(InvalidTask, match=r"with other parameters.*timeout=5 and now timeout=6"):
        ATPTask(func=function, timeout=6)
    assert first.using(priority=1).parameters == {"timeout": 5}


def test_using_takes_options_of_an_enqueue():
    soon = timedelta(minutes=5)
    task = tasks.add.using(identifier="a", existing="return", start_before=soon, priority=3)
    assert task.options == {"identifier": "a", "existing": "return", "start_before": soon}
    assert (task.priority, tasks.add.options) == (3, {})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("timeout", r"say it in @task\(timeout=…\)"),
        ("collection", "It is called 'queue_name' here"),
        ("identifer", "Did you mean 'identifier'?"),
        ("prioity", "Did you mean 'priority'?"),
    ],
)
def test_using_says_what_is_wrong(name, words):
    with pytest.raises(TypeError, match=words):
        tasks.add.using(**{name: 1})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"queue_name": "two\nlines"}, "collection"),
        ({"queue_name": "x" * 201}, "collection"),
        ({"identifier": ""}, "identifier must not be empty"),
        ({"existing": "redrve"}, r"Did you mean 'redrive'\?"),
        ({"priority": 101}, "priority must be a whole number"),
        ({"run_after": datetime(2030, 1, 1)}, "aware"),
    ],
)
def test_options_that_make_no_sense(changes, words):
    with pytest.raises(InvalidTask, match=words):
        tasks.add.using(**changes)


def test_a_name_that_no_type_can_have(function):
    function.__module__, module = "ünmöglich", function.__module__
    try:
        with pytest.raises(InvalidTask, match="an identifier is"):
            ATPTask(func=function)
    finally:
        function.__module__ = module


@pytest.mark.skipif(django.VERSION < (6, 1), reason="tasks can be pickled since Django 6.1")
def test_pickling():
    task = tasks.add.using(identifier="a", run_after=datetime(2030, 1, 1, tzinfo=UTC))
    assert pickle.loads(pickle.dumps(task)) == task


def test_calling_in_this_process():
    assert tasks.add.call(1, second=2) == 3
    assert tasks.later.call(1) == 2

"""Tests of the declaration of Types: parameters, options, and what is refused (G13)."""

import importlib
import sys
from dataclasses import fields
from datetime import timedelta

import pytest

from atp import task_type
from atp.authoring.parameters import OPTIONS, PARAMETER_NAMES
from atp.authoring.task_type import TaskType
from atp.exceptions import (
    InvalidInputs,
    InvalidOption,
    InvalidType,
    UnknownType,
    UnregisteredHandler,
)
from atp.operations.registry import OWN_TYPES, Registry, registry
from atp.options import Options, OptionValues

from .app.tasks import add

pytestmark = pytest.mark.usefixtures("own_types")


def declare(identifier="tests.declared", **parameters):
    @task_type(identifier, **parameters)
    def handler(context, value=1):
        """Return the value."""
        return value

    return handler


class TestDeclaring:
    def test_only_types_declared_while_django_starts_are_reached_by_daemons(self):
        assert registry.is_reached("tests.add")
        # The Types of ATP are reached, too, before their module is imported.
        assert all(map(registry.is_reached, OWN_TYPES))
        assert set(OWN_TYPES) == {name for name in OWN_TYPES if name in Registry()}
        assert not registry.is_reached(declare().identifier)
        assert not registry.is_reached("tests.nowhere")
        registry.add(add)
        assert registry.is_reached("tests.add")

    def test_declared_type_can_be_called_like_its_handler(self):
        declared = declare()
        assert declared(None, value=7) == 7
        assert declared.__doc__ == "Return the value."
        assert (declared.__name__, str(declared)) == ("handler", "tests.declared")
        assert registry.get("tests.declared") is registry.handler_of("tests.declared") is declared
        assert declared in list(registry)
        assert declared.handler_path.startswith(f"{__name__}.declare.")

    def test_registration_uses_given_parameters_and_settings_for_the_rest(self, settings):
        declared = declare()
        settings.ATP = {"TIMEOUT": 7, "MAX_RESTARTS": 9, "RETENTION": timedelta(days=2)}
        found = declared.registration()
        assert (found.timeout, found.max_restarts) == (timedelta(seconds=7), 9)
        assert found.retention == timedelta(days=2)
        settings.ATP = {}
        assert declared.registration().max_restarts == 3
        plain = {"max_restarts": 1, "max_retries": 2, "backoff_max": timedelta(minutes=1)}
        plain |= {"retention": None, "owner": "Ground team"}
        plain |= {"runbook": "https://wiki:8443/relief?page=2#top"}
        found = declare(timeout=60, backoff=0.5, **plain).registration()
        assert {name: getattr(found, name) for name in plain} == plain
        assert (found.timeout, found.backoff) == (timedelta(minutes=1), timedelta(seconds=0.5))
        assert declare("tests.ever", timeout=None).registration().timeout is None
        for given, database in ((True, "default"), (False, None), ("queue", "queue")):
            assert declare(transactional=given).database == database
            assert registry.is_transactional("tests.declared") is bool(given)
        for given, count in (("512MiB", 2**29), ("2 GB", 2**31), (2**29, 2**29), (None, None)):
            settings.ATP = {}
            assert declare(max_memory=given).registration().max_memory == count
            settings.ATP = {"MAX_MEMORY": given}
            assert declare("tests.other").registration().max_memory == count

    def test_max_memory_of_the_settings_is_not_for_loops(self, settings):
        settings.ATP = {"MAX_MEMORY": "512MiB"}

        @task_type("tests.declared", concurrency=5)
        async def handler(context):
            pass

        assert handler.registration().max_memory is None


class TestBadDeclarations:
    def test_invalid_identifier_is_rejected(self):
        for identifier in ("", ".x", "a b", "a/b", "ä", "x" * 201, "a\n", None, 5, "-a"):
            with pytest.raises(InvalidType, match="identifier"):
                declare(identifier)
        for identifier in ("a", "dem.hillshade", "A-1:b_c", "9", "x" * 200):
            assert declare(identifier).identifier == identifier

    def test_unknown_or_invalid_parameter_is_rejected(self):
        with pytest.raises(InvalidType, match=r"no parameter 'time_out'\. Did you mean 'timeout'"):
            declare(time_out=5)
        for name, values in {
            "timeout": [0, -1, "60", True, float("nan"), float("inf"), timedelta(0)],
            "max_memory": [0, 512, "512", "lots", "1.5G", True, 2.5, "9" * 30],
            "keep_processes": [1],
            "stoppable": ["no", None],
            "retention": [-1, timedelta(days=10**6)],
            "backoff": [None],
            "backoff_max": [-0.1, 1],
            "max_restarts": [None, -1, 1.0, True],
            "max_retries": [10**9],
            "concurrency": [0, 1001, "10", 2.0, True],
            "serializer": ["yaml", "pickle"],
            "transactional": ["", None, 1],
            "priority": [1000],
            "collection": [3],
            "owner": [None, "two\nlines", "x" * 201],
            "runbook": [
                *(None, "wiki/relief", "javascript:alert(1)", "https://", "https://[wiki/relief"),
                *("https://wiki/a page", "https://wiki/" + "a" * 500),
            ],
        }.items():
            for value in values:
                with pytest.raises(InvalidType, match=name):
                    declare("tests.bad", **{"backoff": 10, name: value})
        for alias in (True, "default"):
            with pytest.raises(InvalidType, match="stoppable and transactional exclude each"):
                declare("tests.bad", stoppable=True, transactional=alias)
        for other in (
            *({"transactional": True}, {"stoppable": True}, {"max_memory": "512MiB"}),
            *({"keep_processes": True}, {"resources": {"gpu": 1}}),
        ):
            [name] = other
            with pytest.raises(InvalidType, match=f"concurrency and {name} exclude each"):
                declare("tests.bad", concurrency=10, **other)
        assert "tests.bad" not in registry


def test_method_using_returns_a_copy_and_hints_at_the_name_of_a_misspelt_option():
    """G13. G14: a process runs only handlers that it declares."""
    other = add.using(priority=7, identifier="x")
    assert (other.options.priority, other.options.identifier) == (7, "x")
    assert add.options == Options()
    assert other.using(priority=8).options.identifier == "x"
    assert other.registration() == add.registration()
    with pytest.raises(InvalidOption, match=r"'prioriti'\. Did you mean 'priority'"):
        add.using(prioriti=1)
    with pytest.raises(UnknownType, match=r"Did you mean 'tests\.add'"):
        registry.get("tests.ad")
    with pytest.raises(LookupError):
        registry.get("nothing.like.it")
    with pytest.raises(UnregisteredHandler, match=r"no handler for Type 'os\.system'"):
        registry.handler_of("os.system")


def test_invalid_handler_is_rejected_when_declared():
    """G13: otherwise every attempt would fail."""

    async def async_generator(context):
        yield

    def generator(context):
        yield

    class Callable:
        def __call__(self, context):
            pass

    for handler, told in (
        (async_generator, "handler must be a"),
        (generator, "Return a list of all that it yields"),
        (Callable(), "handler must be a"),
    ):
        with pytest.raises(InvalidType, match=told):
            task_type("tests.refused")(handler)
    with pytest.raises(InvalidInputs, match="context"):
        task_type("tests.refused")(lambda: None)
    with pytest.raises(InvalidType, match=r"plain function\. Each runs in a process of its own"):
        task_type("tests.refused", concurrency=10)(lambda context: None)
    with pytest.raises(InvalidType, match=r"needs parentheses.* @task_type\('app.resize'\)"):

        @task_type
        def resize(context):
            pass

    assert "tests.refused" not in registry


_TWICE = """
from atp import task_type

@task_type("tests.twice")
def twice(context):
    return 1
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that writes a module and imports or reloads it."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(source):
        (tmp_path / "declares_twice.py").write_text(source)
        importlib.invalidate_caches()
        if "declares_twice" in sys.modules:
            return importlib.reload(sys.modules["declares_twice"])
        return importlib.import_module("declares_twice")

    yield load
    sys.modules.pop("declares_twice", None)


def test_type_declared_twice_is_rejected_unless_its_module_is_reloaded(module):
    """G13: a copied declaration would otherwise replace the original."""
    with pytest.raises(InvalidType, match=r"declared twice by .*: in line 4 and in line 8"):
        module(_TWICE + _TWICE.replace("\nfrom atp import task_type\n", ""))
    registry.remove("tests.twice")
    module(_TWICE)
    module("\n\n" + _TWICE)
    sys.modules.pop("declares_twice")
    module("\n\n\n" + _TWICE)
    assert registry.get("tests.twice").handler.__code__.co_firstlineno == 7


def test_annotations_for_type_checkers_name_all_parameters_and_options():
    """A type checker knows the same names as ATP's own checks."""
    parameters = {field.name for field in fields(TaskType)}
    others = {"handler", "identifier", "options", "adapters"}
    assert {*PARAMETER_NAMES} - {*OPTIONS} == parameters - others
    assert {*OptionValues.__annotations__} == {field.name for field in fields(Options)}

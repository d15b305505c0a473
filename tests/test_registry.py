"""Tests of :mod:`atp.verbs.registry`."""

import importlib
import sys
from dataclasses import fields
from datetime import timedelta

import pytest

from atp import task_type
from atp.authoring.parameters import KNOWN, OPTIONS
from atp.authoring.task_type import TaskType
from atp.exceptions import (
    InvalidInputs,
    InvalidOption,
    InvalidType,
    UnknownType,
    UnregisteredHandler,
)
from atp.verbs.registry import OWN, Registry, registry
from atp.words.options import Options, OptionValues

from .app.tasks import add, keyword


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """What a test declares is forgotten afterwards."""
    monkeypatch.setattr(registry, "_types", dict(registry._types))


def declare(identifier="tests.declared", **parameters):
    @task_type(identifier, **parameters)
    def handler(context, value=1):
        """What it does."""
        return value

    return handler


class TestDeclaring:
    def test_it_is_in_the_registry(self):
        declared = declare()
        assert isinstance(declared, TaskType)
        assert registry.get("tests.declared") is declared
        assert registry.handler_of("tests.declared") is declared
        assert "tests.declared" in registry
        assert declared in list(registry)

    def test_daemons_reach_what_is_declared_while_django_starts(self):
        assert registry.is_reached("tests.add")
        assert all(map(registry.is_reached, OWN))
        assert not registry.is_reached(declare().identifier)
        assert not registry.is_reached("tests.nowhere")

    def test_a_module_that_is_imported_again_is_reached_as_before(self):
        registry.add(add)
        assert registry.is_reached("tests.add")

    def test_a_decorator_without_parentheses(self):
        with pytest.raises(InvalidType, match=r"needs parentheses.* @task_type\('app.resize'\)"):

            @task_type
            def resize(context):
                """Do nothing."""

    def test_tasks_modules_are_discovered(self):
        """Found like Django's admin.py."""
        assert registry.get("tests.add") is add

    def test_it_can_be_called_and_looks_like_its_handler(self):
        declared = declare()
        assert declared(None, value=7) == 7
        assert declared.__doc__ == "What it does."
        assert (declared.__name__, str(declared)) == ("handler", "tests.declared")
        assert declared.handler_path.startswith(f"{__name__}.declare.")

    def test_parameters_that_are_not_given_are_the_settings(self, settings):
        declared = declare()
        settings.ATP = {"TIMEOUT": 7, "MAX_RESTARTS": 9, "RETENTION": timedelta(days=2)}
        found = declared.registration()
        assert (found.timeout, found.max_restarts) == (timedelta(seconds=7), 9)
        assert found.retention == timedelta(days=2)
        settings.ATP = {}
        assert declared.registration().max_restarts == 3

    def test_parameters_that_are_given(self):
        found = declare(
            timeout=60,
            max_restarts=1,
            max_retries=2,
            backoff=0.5,
            backoff_max=timedelta(minutes=1),
            retention=None,
        ).registration()
        assert found.timeout == timedelta(minutes=1)
        assert (found.max_restarts, found.max_retries) == (1, 2)
        assert (found.backoff, found.backoff_max) == (
            timedelta(seconds=0.5),
            timedelta(minutes=1),
        )
        assert found.retention is None

    def test_none_is_never_and_for_ever(self):
        found = declare(timeout=None, retention=None).registration()
        assert (found.timeout, found.retention) == (None, None)

    def test_priority_and_collection_are_defaults_of_the_options(self):
        assert keyword.options == Options(priority=5, collection="books")

    @pytest.mark.parametrize(
        ("given", "database"), [(True, "default"), (False, None), ("queue", "queue")]
    )
    def test_transactional(self, given, database):
        assert declare(transactional=given).database == database
        assert registry.is_transactional("tests.declared") is bool(given)

    def test_the_same_function_may_be_declared_again(self):
        """As when its module is loaded once more."""
        declare()
        again = declare()
        assert registry.get("tests.declared") is again


class TestBadDeclarations:
    """G13: told when it is declared, by name."""

    @pytest.mark.parametrize(
        "identifier", ["", ".x", "a b", "a/b", "ä", "x" * 201, "a\n", None, 5, "-a"]
    )
    def test_identifier(self, identifier):
        with pytest.raises(InvalidType, match="identifier"):
            declare(identifier)

    @pytest.mark.parametrize("identifier", ["a", "dem.hillshade", "A-1:b_c", "9", "x" * 200])
    def test_good_identifier(self, identifier):
        assert declare(identifier).identifier == identifier

    def test_unknown_parameter(self):
        with pytest.raises(InvalidType, match=r"no parameter 'time_out'\. Did you mean 'timeout'"):
            declare(time_out=5)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("timeout", 0),
            ("timeout", -1),
            ("timeout", "60"),
            ("max_memory", 0),
            ("max_memory", -1),
            ("max_memory", 512),
            ("max_memory", "512"),
            ("max_memory", "lots"),
            ("max_memory", "1.5G"),
            ("max_memory", True),
            ("max_memory", 2.5),
            ("max_memory", "9" * 30),
            ("keep_processes", 1),
            ("stoppable", 1),
            ("stoppable", "no"),
            ("stoppable", None),
            ("timeout", True),
            ("timeout", float("nan")),
            ("timeout", float("inf")),
            ("timeout", timedelta(0)),
            ("retention", -1),
            ("retention", timedelta(days=10**6)),
            ("backoff", None),
            ("backoff_max", -0.1),
            ("max_restarts", None),
            ("max_restarts", -1),
            ("max_restarts", 1.0),
            ("max_restarts", True),
            ("max_retries", 10**9),
            ("serializer", "yaml"),
            ("serializer", "pickle"),
            ("transactional", ""),
            ("transactional", None),
            ("transactional", 1),
            ("owner", None),
            ("owner", "two\nlines"),
            ("owner", "x" * 201),
            ("runbook", None),
            ("runbook", "wiki/relief"),
            ("runbook", "javascript:alert(1)"),
            ("runbook", "https://"),
            ("runbook", "https://[wiki/relief"),
            ("runbook", "https://wiki/a page"),
            ("runbook", "https://wiki/" + "a" * 500),
        ],
    )
    def test_parameter_out_of_range(self, name, value):
        with pytest.raises(InvalidType, match=name):
            declare(**{name: value})

    @pytest.mark.parametrize("alias", [True, "default"])
    def test_what_is_in_a_transaction_is_not_to_be_stopped_inside_it(self, alias):
        with pytest.raises(InvalidType, match="stoppable and transactional exclude each other"):
            declare(stoppable=True, transactional=alias)

    @pytest.mark.parametrize(
        ("given", "count"),
        [("512MiB", 2**29), ("512M", 2**29), ("2 GB", 2**31), (2**29, 2**29), (None, None)],
    )
    def test_a_limit_on_memory(self, settings, given, count):
        assert declare(max_memory=given).registration().max_memory == count
        settings.ATP = {"MAX_MEMORY": given}
        assert declare("tests.other").registration().max_memory == count

    def test_who_looks_after_it(self):
        given = {"owner": "Ground team", "runbook": "https://wiki:8443/relief?page=2#top"}
        found = declare(**given).registration()
        assert {name: getattr(found, name) for name in given} == given

    def test_nothing_is_declared_by_a_bad_declaration(self):
        with pytest.raises(InvalidType):
            declare("tests.bad", timeout=0)
        assert "tests.bad" not in registry

    def test_a_handler_without_a_context(self):
        with pytest.raises(InvalidInputs, match="context"):
            task_type("tests.bad")(lambda: None)
        assert "tests.bad" not in registry

    def test_two_functions_under_one_identifier(self):
        declare()
        with pytest.raises(InvalidType, match="declared twice"):

            @task_type("tests.declared")
            def other(context): ...

    def test_pickle_by_explicit_setting_only(self, settings):
        """G14."""
        settings.ATP = {"ALLOW_PICKLE": True}
        assert declare(serializer="pickle").registration().serializer == "pickle"


class TestUsing:
    def test_it_returns_another_type_with_other_options(self):
        other = add.using(priority=7, identifier="x")
        assert (other.options.priority, other.options.identifier) == (7, "x")
        assert add.options == Options()
        assert other.using(priority=8).options.identifier == "x"
        assert other.identifier == add.identifier
        assert other.registration() == add.registration()

    def test_an_unknown_option_is_refused(self):
        """G13."""
        with pytest.raises(InvalidOption, match=r"'prioriti'\. Did you mean 'priority'"):
            add.using(prioriti=1)


class TestRegistry:
    def test_an_unknown_type(self):
        """G13."""
        with pytest.raises(UnknownType, match=r"Did you mean 'tests\.add'"):
            registry.get("tests.ad")
        with pytest.raises(LookupError):
            registry.get("nothing.like.it")

    def test_an_unregistered_handler(self):
        """G13, and G14: only what this process declares is ever run."""
        with pytest.raises(UnregisteredHandler, match=r"no handler for Type 'os\.system'"):
            registry.handler_of("os.system")

    def test_types_of_atp_itself_before_their_module_is_imported(self):
        """Or the report of what waits for a deploy names them as served by nobody."""
        assert set(OWN) == {name for name in OWN if name in Registry()}

    def test_remove(self):
        own = Registry()
        own.add(add)
        own.remove(add.identifier)
        own.remove(add.identifier)
        assert list(own) == []


async def _async_generator(context):
    yield


def _generator(context):
    yield


class _Callable:
    def __call__(self, context):
        pass


@pytest.mark.parametrize("handler", [_async_generator, _generator, _Callable()])
def test_what_is_no_handler_is_refused(handler):
    """Before every attempt of it fails (G13)."""
    with pytest.raises(InvalidType, match="handler is a"):
        task_type("tests.refused")(handler)
    assert "tests.refused" not in registry


@pytest.mark.parametrize(
    "parameters",
    [{"priority": 1000}, {"collection": 3}, {"backoff": 10, "backoff_max": 1}],
)
def test_parameters_under_which_every_enqueue_would_fail(parameters):
    with pytest.raises(InvalidType):
        task_type("tests.refused", **parameters)


def test_a_generator_is_told_what_to_do():
    with pytest.raises(InvalidType, match="Return a list of all that it yields"):
        task_type("tests.refused")(_generator)


_TWICE = """
from atp import task_type

@task_type("tests.twice")
def twice(context):
    return 1
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that writes a module and imports it, anew if it was before."""
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


def test_two_functions_of_one_name_in_one_module(module):
    """G13: as when one was copied, and its name was not changed."""
    with pytest.raises(InvalidType, match=r"declared twice by .*: in line 4 and in line 8"):
        module(_TWICE + _TWICE.replace("\nfrom atp import task_type\n", ""))


def test_a_module_that_is_imported_again(module):
    module(_TWICE)
    module("\n\n" + _TWICE)
    sys.modules.pop("declares_twice")
    module("\n\n\n" + _TWICE)
    assert registry.get("tests.twice").handler.__code__.co_firstlineno == 7


def test_every_parameter_and_every_option_has_a_hint():
    """A type checker and the checks of ATP itself know the same names."""
    parameters = {field.name for field in fields(TaskType)}
    assert {*KNOWN} - {*OPTIONS} == parameters - {"handler", "identifier", "options", "adapters"}
    assert {*OptionValues.__annotations__} == {field.name for field in fields(Options)}

"""Tests of the layers in docs/architecture.md: imports point down, and only the store writes."""

import ast
import sys
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter

import pytest

from atp.models import Kind, LogRecord
from atp.states import Event
from atp.store import get_store, protocol

from .app.tasks import add
from .imports import PLAN, Import, imports, sources, writes

LEVELS = {name: number for number, names in PLAN.items() for name in names.split()}
WEB = ("atp.web", "atp.pages", "atp.urls", "atp.api", "atp.admin", "atp.templatetags")
NOT_FOR_WEB = ("atp.store", "atp.daemon")
SELECTING = {"filter", "exclude", "get", "update_or_create", "get_or_create"}
SOURCES = list(sources())
NAMES = [name for name, _, _ in SOURCES]


# Parts reach each other through the whole, so their type hints name it: a part of a store the
# store, a part of the dispatcher the core and the other parts.
WHOLES = {
    "atp.store": {"atp.store.common.store", "atp.store.postgresql", "atp.store.sqlite"},
    "atp.daemon.dispatcher": {name for name in NAMES if name.startswith("atp.daemon.dispatcher.")},
}

# Packages whose modules are on several levels. Their ``__init__`` has only a docstring.
FEATURES = {"atp.schedules", "atp.graphs", "atp.tailers", "atp.downstreams", "atp.deadletters"}


def level(module):
    """Return the level of a module. Raises KeyError if the plan does not place the module."""
    if module in FEATURES:
        return 0
    patterns = [name for name in LEVELS if "*" in name and fnmatchcase(module, name)]
    packages = [module]
    while packages[-1] != "atp" and "." in packages[-1]:
        packages.append(packages[-1].rpartition(".")[0])
    for name in (module, *patterns, *packages[1:]):
        if name in LEVELS and (name != "atp" or module == "atp"):
            return LEVELS[name]
    raise KeyError(f"the plan has no place for {module}: give it a level")


def below(module, prefixes):
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


def names_its_whole(found: Import):
    """Whether a type hint of a part names the whole that the part belongs to."""
    return found.is_hint and any(
        below(found.importer, (package,)) and found.imported in names
        for package, names in WHOLES.items()
    )


def problem_with(found: Import):
    """Return what is wrong with an import, or None."""
    is_web = below(found.importer, WEB) or found.importer.endswith((".api", ".pages"))
    if is_web and below(found.imported, NOT_FOR_WEB):
        return f"{found}: web code can use operations and models, but no layer below them"
    if found.imported == "atp" or level(found.imported) <= level(found.importer):
        return None
    return f"{found}: level {level(found.imported)} from level {level(found.importer)}"


def problems(found):
    return [problem for each in found if (problem := problem_with(each))]


def test_imports_point_down_and_form_no_cycle():
    """The check covers indirect imports, imports in functions, and imports for type hints."""
    needs, wrong = {}, []
    for name, source, is_package in SOURCES:
        level(name)
        found = imports(name, source, is_package=is_package, known=NAMES)
        wrong += problems(found)
        imported = {each.imported for each in found if not names_its_whole(each)}
        needs[name] = imported.intersection(NAMES) - {name}
    assert wrong == []
    try:
        list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        pytest.fail(" needs ".join(error.args[1]))


def test_layer_check_finds_an_upward_import():
    for number, name, source in (
        (1, "atp.states", "from . import models"),
        (1, "atp.states", "import atp.models"),
        (1, "atp.operations.registry", "def late():\n    from .. import queue"),
        (1, "atp.admin", "from .store import get_store"),
        (0, "atp.models", "from .states import State\nfrom . import codec\nimport atp.fields"),
        (0, "atp.store.common.claims", "from ...models import Task\nfrom .base import ORMBase"),
        (1, "atp.states", "if TYPE_CHECKING:\n    from .models import Task"),
    ):
        assert len(problems(imports(name, source, known=NAMES))) == number, (name, source)
    with pytest.raises(KeyError, match="give it a level"):
        level("atp.utilities")


def test_no_module_outside_the_store_writes_to_the_models():
    found = {name: writes(source) for name, source, _ in SOURCES if not below(name, ["atp.store"])}
    assert {name: lines for name, lines in found.items() if lines} == {}
    for number, source in (
        (1, "Task.objects.create(due_at=now)"),
        (1, "rows = Instance.objects.filter(pk=1)\nrows.update(state='FAILED')"),
        (1, "self.rows(Task).filter(pk=1).delete()"),
        (1, "Task(due_at=now).save()"),
        (0, "Instance.objects.using(alias).filter(pk=1).count()"),
        (0, "user.save()"),
    ):
        assert len(writes(source)) == number, source


def test_no_query_filters_by_log_message():
    """Code calls messages through their module, so that ``tests.nonsense`` can replace them."""
    for name, source, _ in SOURCES:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").removeprefix("atp.") != "messages", name
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in SELECTING:
                given = {keyword.arg or "" for keyword in node.keywords}
                assert not any(each.partition("__")[0] == "message" for each in given), name


def test_kinds_and_events_of_the_log_have_distinct_names():
    """Otherwise a log record of another kind would look like a transition."""
    names = [*Event.values, *Kind.values]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= LogRecord._meta.get_field("kind").max_length


def test_enqueue_passes_through_at_most_12_modules_above_the_store(db):
    """A reader who follows an enqueue from its call to the store opens at most 12 modules."""
    add.enqueue(1, second=2)
    passed = set()

    def look(frame, event, argument):
        name = frame.f_globals.get("__name__", "")
        if event == "call" and below(name, ["atp"]) and not below(name, ["atp.store"]):
            passed.add(name)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        add.enqueue(1, second=3)
    finally:
        sys.setprofile(before)
    assert len(passed) <= 12, sorted(passed)


@pytest.mark.each_database
def test_a_part_of_the_store_is_made_of_at_most_four_classes():
    """Whoever looks for a method of ``self`` has few places to look."""
    store = get_store()
    names = [n for n, found in vars(protocol.Store).items() if isinstance(found, property)]
    parts = [getattr(store, name) for name in names if name != "lock_folder"]
    assert len(parts) > 15
    orders = {type(each).__qualname__: len(type(each).__mro__) for each in (store, *parts)}
    assert {name: count for name, count in orders.items() if count > 4} == {}

"""The levels of docs/architecture.md: imports point down, and no circle is within a level."""

from graphlib import CycleError, TopologicalSorter

import pytest

from .imports import PLAN, Import, imports, sources, writes

LEVELS = {name: number for number, names in PLAN.items() for name in names.split()}
WEB = ("atp.web", "atp.views", "atp.urls", "atp.api", "atp.admin", "atp.templatetags")
NOT_FOR_WEB = ("atp.store", "atp.daemon")

SOURCES = list(sources())
NAMES = [name for name, _, _ in SOURCES]


def level(module):
    """Return the level of a module. Raises KeyError for one that the plan does not place."""
    found = module
    while found not in LEVELS:
        found = found.rpartition(".")[0]
        if found in ("", "atp"):
            raise KeyError(f"the plan has no place for {module}: give it a level")
    return LEVELS[found]


def below(module, prefixes):
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


def problem_with(found: Import):
    """Return what is wrong with an import, or None."""
    if below(found.importer, WEB) and below(found.imported, NOT_FOR_WEB):
        return f"{found}: pages use verbs and read models, nothing below them"
    if found.imported == "atp" or level(found.imported) <= level(found.importer):
        return None
    return f"{found}: level {level(found.imported)} from level {level(found.importer)}"


def problems(name, source, *, is_package=False):
    found = imports(name, source, is_package=is_package, known=NAMES)
    return [problem for each in found if (problem := problem_with(each))]


@pytest.mark.parametrize(("name", "source", "is_package"), SOURCES, ids=NAMES)
def test_imports_point_down(name, source, is_package):
    level(name)
    assert problems(name, source, is_package=is_package) == []


def test_no_circle_within_a_level():
    """A module needs none that needs it, be it through others, and be it late."""
    needs = {name: set() for name in NAMES}
    for name, source, is_package in SOURCES:
        for found in imports(name, source, is_package=is_package, known=NAMES):
            if found.imported in needs and found.imported != name:
                needs[name].add(found.imported)
    try:
        list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        pytest.fail(" needs ".join(error.args[1]))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("atp.states", "from .models import Task"),
        ("atp.states", "from . import models"),
        ("atp.states", "import atp.models"),
        ("atp.states", "from atp import queue"),
        ("atp.models", "def late():\n    from .store import get_store"),
        ("atp.store.common.claims", "from ...verbs.registry import registry"),
        ("atp.store.common.claims", "from ... import queue"),
        ("atp.verbs.registry", "from .. import queue"),
        ("atp.verbs.registry", "def late():\n    from .. import queue"),
        ("atp.verbs.registry", "def late():\n    from ..daemon import supervisor"),
        ("atp.queue", "from .daemon.worker import Worker"),
        ("atp.daemon.worker.worker", "from ...management.commands import atpd"),
        ("atp.admin", "from .store import get_store"),
        ("atp.views", "def late():\n    from atp.daemon import supervisor"),
        ("atp.api.serializers", "from ..store.values import Move"),
    ],
)
def test_an_import_upwards_is_found(name, source):
    assert len(problems(name, source)) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("atp.models", "from .states import State\nfrom . import codec\nimport atp.words.uuids"),
        ("atp.store.common.claims", "from ...models import Task\nfrom .base import ORMBase"),
        ("atp.admin", "from . import queue\nfrom .models import Task\nimport os"),
        ("atp.management.commands.atpd", "from ...daemon.supervisor import supervisor"),
        ("atp.states", "if TYPE_CHECKING:\n    from .models import Task"),
    ],
)
def test_an_import_downwards_is_fine(name, source):
    assert problems(name, source) == []


def test_a_module_that_the_plan_does_not_place_is_found():
    with pytest.raises(KeyError, match="give it a level"):
        level("atp.utilities")


OUTSIDE_THE_STORE = [entry for entry in SOURCES if not below(entry[0], ["atp.store"])]


@pytest.mark.parametrize(
    ("name", "source"),
    [(name, source) for name, source, _ in OUTSIDE_THE_STORE],
    ids=[name for name, _, _ in OUTSIDE_THE_STORE],
)
def test_only_the_store_writes(name, source):
    assert writes(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "Task.objects.create(due_at=now)",
        "models.LogRecord.objects.bulk_create([])",
        "Instance.objects.using(alias).filter(pk=1).update(state='FAILED')",
        "rows = Instance.objects.filter(pk=1)\nrows.update(state='FAILED')",
        "Task.objects.all()[:5].delete()",
        "instance = Instance.objects.get(pk=1)\ninstance.save()",
        "self.rows(Task).filter(pk=1).delete()",
        "Task(due_at=now).save()",
    ],
)
def test_a_write_outside_the_store_is_found(source):
    assert len(writes(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "Instance.objects.using(alias).filter(pk=1).count()",
        "store.record([change])",
        "details.update(more)",
        "user.save()",
        "Response.objects.create()",
    ],
)
def test_what_is_no_write_to_the_queue_is_fine(source):
    assert writes(source) == []

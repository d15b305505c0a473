"""The layers of the house plan, section 4: arrows point down, never up."""

import pytest

from .imports import Import, imports, sources, writes

# The house plan's picture; a package stands for all that lies in it.
PLAN = {
    0: """atp.states atp.exceptions atp.conf atp.codec atp.backoff atp.signals atp.uuids
          atp.binding atp.filelock atp.modes atp.options atp.router atp.wording atp.rates
          atp.told""",
    1: "atp.constraints atp.fields atp.querysets atp.models atp.router",
    2: "atp.store",
    3: "atp.registry",
    4: """atp.queue atp.controls atp.logs atp.calls atp.context atp.overview atp.paging
          atp.documents atp.timeline atp.health atp.changing atp.commanding atp.steering
          atp.finding atp.waiting""",
    5: "atp.daemon",
    6: """atp atp.management atp.web atp.views atp.urls atp.api atp.admin atp.checks atp.apps
          atp.testing atp.templatetags""",
}
LEVELS = {name: number for number, names in PLAN.items() for name in names.split()}
# TaskType.enqueue() is a verb that an author calls on what is declared.
SANCTIONED = {("atp.registry", "atp.queue")}
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
    if found.lazy and (found.importer, found.imported) in SANCTIONED:
        return None
    return f"{found}: level {level(found.imported)} from level {level(found.importer)}"


def problems(name, source, *, is_package=False):
    found = imports(name, source, is_package=is_package, known=NAMES)
    return [problem for each in found if (problem := problem_with(each))]


@pytest.mark.parametrize(("name", "source", "is_package"), SOURCES, ids=NAMES)
def test_imports_point_down(name, source, is_package):
    level(name)
    assert problems(name, source, is_package=is_package) == []


def test_the_sanctioned_import_is_still_needed():
    [source] = [source for name, source, _ in SOURCES if name == "atp.registry"]
    lazy = [i for i in imports("atp.registry", source, known=NAMES) if i.lazy]
    assert {(i.importer, i.imported) for i in lazy} == SANCTIONED


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("atp.states", "from .models import Task"),
        ("atp.states", "from . import models"),
        ("atp.states", "import atp.models"),
        ("atp.states", "from atp import queue"),
        ("atp.models", "def late():\n    from .store import get_store"),
        ("atp.store.orm.claims", "from ...registry import registry"),
        ("atp.store.orm.claims", "from ... import queue"),
        ("atp.registry", "from . import queue"),  # at the top: not the sanctioned one
        ("atp.registry", "def late():\n    from .daemon import supervisor"),
        ("atp.queue", "from .daemon.worker import Worker"),
        ("atp.daemon.worker", "from ..management.commands import atpd"),
        ("atp.admin", "from .store import get_store"),
        ("atp.views", "def late():\n    from atp.daemon import supervisor"),
        ("atp.api.serializers", "from ..store.values import Change"),
    ],
)
def test_an_import_upwards_is_found(name, source):
    assert len(problems(name, source)) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("atp.models", "from .states import State\nfrom . import codec\nimport atp.uuids"),
        ("atp.store.orm.claims", "from ...models import Task\nfrom .base import ORMBase"),
        ("atp.registry", "def late():\n    from . import queue"),
        ("atp.admin", "from . import queue\nfrom .models import Task\nimport os"),
        ("atp.management.commands.atpd", "from ...daemon import supervisor"),
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

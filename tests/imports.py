"""What modules import and write, read from their source with ast."""

import ast
from dataclasses import dataclass
from importlib.util import resolve_name
from pathlib import Path

PACKAGE = "atp"
ROOT = Path(__file__).resolve().parent.parent


# The levels of the package, from the lowest to the highest: an import points down. A package
# stands for all that is in it, but for the modules that are named, alone or by a pattern.
PLAN = {
    0: """atp.states atp.signals atp.commands atp.folders atp.text atp.placement atp.exceptions
          atp.options atp.conf atp.outside atp.router atp.fields atp.querysets atp.middleware
          atp.payload
          atp.graphs.placeholders atp.graphs.drawing atp.schedules.timing
          atp.downstreams.protection""",
    1: "atp.models atp.*.models",
    2: "atp.store atp.messages atp.graphs.plan",
    3: """atp.operations atp.authoring atp.contracts atp.sources atp.executors
          atp.graphs.operations
          atp.graphs.builder atp.schedules.declaring atp.schedules.operations""",
    4: """atp.reports atp.graphs.reports atp.schedules.reports atp.downstreams.operations
          atp.tailers.operations atp.deadletters.operations atp.operations.table""",
    5: "atp.queue atp.webhooks atp.tailers.tailer atp.deadletters.tasks",
    6: "atp.daemon",
    7: """atp atp.web atp.pages atp.api atp.ogc atp.admin atp.shell
          atp.*.pages atp.*.api atp.*.shell atp.templatetags
          atp.urls atp.management atp.checks atp.apps atp.backend atp.contrib
          atp.testing""",
}


@dataclass(frozen=True)
class Import:
    """An import of one module of the package by another."""

    importer: str
    imported: str
    line: int
    is_hint: bool = False

    def __str__(self):
        return f"{self.importer}:{self.line} imports {self.imported}"


def sources():
    """Yield name and source of every module of the package, migrations left out."""
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if "migrations" in parts:
            continue
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield name, path.read_text(), parts[-1] == "__init__"


def imports(name, source, *, is_package=False, known=()):
    """Return the Imports of one module.

    ``known`` are the names of all modules: they tell an imported module from
    an imported attribute.
    """
    tree, known = ast.parse(source), frozenset(known)
    package = name if is_package else name.rpartition(".")[0]
    hints = {
        below
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for below in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        imported = []
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package)
            wholes = [f"{base}.{alias.name}" for alias in node.names]
            imported = [whole if whole in known else base for whole in wholes]
        found += [
            Import(name, each, node.lineno, node in hints)
            for each in imported
            if each.partition(".")[0] == PACKAGE
        ]
    return found


WRITES = {"create", "bulk_create", "get_or_create", "update", "bulk_update", "update_or_create"}
WRITES |= {"delete", "save"}
WRITES |= {f"a{name}" for name in WRITES}
GUARDED = {"Task", "LogRecord", "Instance"}


def writes(source):
    """Return ``(line, call)`` of what looks like a write to a guarded model.

    As far as ast can tell: a chain of calls and attributes that ends in a
    write and begins at ``Task.objects`` and the like, at a name that was
    assigned from such a chain, or at a call of the model's class.
    """
    tree = ast.parse(source)
    tainted = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_guarded(node.value, tainted):
            tainted.update(t.id for t in node.targets if isinstance(t, ast.Name))
    return [
        (node.lineno, ast.unparse(node.func))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in WRITES
        and _is_guarded(node.func.value, tainted)
    ]


def _is_guarded(node, tainted):
    """Tell whether an expression begins at a guarded model, or takes one as an argument."""
    while True:
        if isinstance(node, ast.Call):
            if any(_names_model(argument) for argument in node.args):
                return True
            node = node.func
        elif isinstance(node, (ast.Attribute, ast.Subscript)):
            if _names_model(node):
                return True
            node = node.value
        else:
            return _names_model(node) or (isinstance(node, ast.Name) and node.id in tainted)


def _names_model(node):
    if isinstance(node, ast.Attribute):
        return node.attr in GUARDED
    return isinstance(node, ast.Name) and node.id in GUARDED

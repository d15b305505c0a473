"""Parts of the documentation that are derived from data: ``python -m tests.generated``.

Each part stands in a page between two marks; running this writes it anew, and
``tests/test_docs.py`` fails while a page is out of date.
"""

import ast
import inspect
import itertools
import os
import re
import sys
from pathlib import Path

from . import imports

DOCS = Path(__file__).resolve().parent.parent / "docs"


def table(head, rows):
    """Return a table of Markdown; each row is a list of cells."""
    lines = [head, "|" + "---|" * (head.count("|") - 1)]
    return "\n".join(lines + [f"| {' | '.join(map(str, row))} |" for row in rows])


def _ordered(states):
    from atp.states import State

    return [state for state in State if state in states]


def transitions():
    """The table of legal transitions."""
    from atp.states import TRANSITIONS

    rows = []
    for row in TRANSITIONS:
        sources = ", ".join(_ordered(row.sources)) or "(new)"
        actors = "; or ".join(sorted(actor.value for actor in row.actors))
        counts = ", ".join([f"{c} + 1" for c in row.counts] + [f"{c} = 0" for c in row.resets])
        rows.append((row.event, sources, row.target, actors, row.row.value, counts))
    return table("| event | from | to | who may | Task row | counts |", rows)


def diagram():
    """The state diagram, for Mermaid."""
    from atp.states import TERMINAL, TRANSITIONS

    arrows = {}
    for row in TRANSITIONS:
        for source in _ordered(row.sources) or ["[*]"]:
            arrows.setdefault((str(source), str(row.target)), []).append(str(row.event))
    lines = [f"    {a} --> {b}: {', '.join(events)}" for (a, b), events in arrows.items()]
    ends = [f"    {state} --> [*]" for state in _ordered(TERMINAL)]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, *ends, "```"])


def reasons():
    """Why an Instance is FAILED."""
    from atp.states import Reason

    return table("| reason | meaning |", [(each.value, each.label) for each in Reason])


def kinds():
    """The kinds of LogRecords that are no transitions."""
    from atp.models import Kind

    return table("| kind | meaning |", [(each.value, each.label) for each in Kind])


def troubles():
    """What a scan may find."""
    from atp.store.facts import Trouble

    rows = [(f"`{each.value}`", each.label) for each in Trouble]
    return table("| found | an Instance or a daemon that is |", rows)


def settings():
    """Every key of ``settings.ATP``, from the docstrings in ``atp/conf.py``."""
    from atp.conf import Defaults

    [own] = ast.parse(inspect.getsource(Defaults)).body
    rows = []
    for node, text in itertools.pairwise(own.body):
        if isinstance(node, ast.AnnAssign):
            kind = ast.unparse(node.annotation).replace("|", "or")
            default = ast.unparse(node.value)
            rows.append((f"`{node.target.id}`", kind, f"`{default}`", text.value.value))
    return table("| key | kind | default | meaning |", rows)


def options():
    """The options of ``manage.py atpd``."""
    from django.core.management.base import BaseCommand

    from atp.management.commands.atpd import Command

    parser = Command().create_parser("manage.py", "atpd")
    own = {a.dest for a in BaseCommand().create_parser("manage.py", "x")._actions}
    rows = []
    for action in parser._actions:
        if action.dest not in own:
            value = f" {action.metavar}" if action.metavar else ""
            if action.choices:
                value = " " + " or ".join(action.choices)
            elif action.dest == "processes":
                value = " N"
            text = " ".join((action.help or "").split("(default: one per")[0].split())
            rows.append((f"`{', '.join(action.option_strings)}{value}`", text.strip()))
    return table("| option | meaning |", rows)


def facts():
    """Every line that a daemon may write to its log."""
    from logging import getLevelName

    from atp.daemon.log import FACTS

    rows = []
    for name, (level, words) in sorted(FACTS.items()):
        without_formats = re.sub(r"{(\w+):[^}]*}", r"{\1}", words)
        rows.append((f"`{name}`", getLevelName(level), without_formats))
    return table("| fact | level | words |", rows)


def operations():
    """Every operation of the API with the permissions that it needs."""
    from drf_spectacular.generators import SchemaGenerator

    from atp.api.urls import urlpatterns

    told = SchemaGenerator(patterns=urlpatterns).get_schema(public=True)["paths"]
    rows = []
    for route in urlpatterns:
        path = re.sub(r"<str:(\w+)>", r"{\1}", str(route.pattern))
        view, actions = route.callback.cls, getattr(route.callback, "actions", {"get": "get"})
        for method, operation in told.get(f"/{path}", {}).items():
            needs = getattr(view, actions[method]).needs
            needed = ", ".join(f"`{name}`" for name in needs) or "none"
            rows.append((f"`{method.upper()} {path}`", operation["summary"], needed))
    return table("| | | permission |", rows)


def problems():
    """Every kind of problem that the API tells of."""
    from atp.api import problems as own
    from atp.web.problems import MEANINGS

    kinds = [kind[1:] for kind in (*MEANINGS, *own.MEANINGS)]
    named = (own.PARAMETER, own.BODY, own.PRECONDITION, own.FAULT)
    kinds += [(problem.status, problem.name, problem.title) for problem in named]
    rows = [(status, f"`{own.URN}{name}`", title) for status, name, title in sorted(set(kinds))]
    return table("| status | type | title |", rows)


def rooms():
    """Each package of ATP, the first line of its docstring, its modules and packages."""
    found = {}
    for name, source, is_package in imports.sources():
        room, *below = name.split(".")[1:] or [""]
        if is_package and not below:
            found[room] = (_first_line(source), [])
        elif not below:
            found[""][1].append(room)
        elif len(below) == 1:
            found[room][1].append(below[0] + "/" * is_package)
    rows = [
        (f"`{room}/`" if room else "`atp/`", summary, ", ".join(modules))
        for room, (summary, modules) in sorted(found.items())
        if room not in ("management", "templatetags")
    ]
    return table("| room | what is in it | modules |", rows)


def _first_line(source):
    text = ast.get_docstring(ast.parse(source)) or ""
    line = re.sub(r":(?:mod|class|func|meth):`([^`]*)`", r"`\1`", text.partition("\n")[0])
    return line.replace("``", "`").replace("|", "\\|")


def levels():
    """The levels of imports, from the lowest to the highest."""
    lines = []
    for number, names in imports.PLAN.items():
        shown = ", ".join(f"`{name.removeprefix('atp.')}`" for name in names.split())
        lines.append(f"{number}. {shown}")
    return "\n".join(lines)


def verbs():
    """The table of verbs, with what each surface calls them."""
    from atp.operations.table import OPERATIONS

    nouns = {"error": "error group", "matching": "all that matches"}
    rows = []
    for kind, entries in OPERATIONS.items():
        for verb in entries.values():
            parameters = ", ".join(f"`{parameter.name}`" for parameter in verb.parameters)
            of = ", ".join(sorted(verb.levels)) if kind == "scope" else nouns.get(kind, kind)
            called = f"`atp {subcommand(kind, verb)}`", f"`{address(kind, verb)}`"
            needs = " and ".join(f"`{name}`" for name in verb.needs)
            rows.append((f"**{verb.label}**: {verb.explanation}", of, parameters, *called, needs))
    return table("| verb | of | parameters | shell | API | permission |", rows)


def permissions():
    """Each permission to act, with the operations that it is for."""
    from atp.operations.operation import CONTROL, DELETE, ENQUEUE, OPERATE
    from atp.operations.table import OPERATIONS

    nouns = {"instance": "Instances", "error": "error groups", "matching": "all that match"}
    rows = []
    for permission in (ENQUEUE, OPERATE, CONTROL, DELETE):
        found = {"enqueue Instances": []} if permission == ENQUEUE else {}
        for kind, entries in OPERATIONS.items():
            for verb in entries.values():
                if verb.permission == permission:
                    of = (verb.of or "Type") if kind == "scope" else kind
                    more = f" (with `{verb.permission_too}`)" if verb.permission_too else ""
                    noun = nouns.get(of, f"{of}s")
                    found.setdefault(f"{noun}: ", []).append(f"*{verb.label}*{more}")
        told = [noun + ", ".join(labels) for noun, labels in found.items()]
        rows.append((f"`{permission}`", "; ".join(told)))
    return table("| permission | allows |", rows)


def subcommand(kind, verb):
    if kind in ("daemon", "schedule", "graph", "downstream", "tailer", "error"):
        return f"{kind} {verb.name}"
    of = getattr(verb, "of", "")
    if of == "limit":
        return "limit" if verb.parameters else "limit --default"
    return f"{of} {verb.name}".strip()


# The attribute by which a path names what an operation is for; of others it is the uuid.
NAMES = dict.fromkeys(("schedule", "tailer", "scope"), "identifier")
NAMES |= dict.fromkeys(("downstream", "error"), "name")


def address(kind, verb):
    if kind == "matching":
        return f"POST matching/{verb.name}"
    if kind != "scope":
        below = f"/{verb.name}" if verb.method == "POST" else ""
        return f"{verb.method} {kind}s/{{{NAMES.get(kind, 'uuid')}}}{below}"
    return f"POST {verb.of}s" if verb.of else f"POST types/{{identifier}}/{verb.name}"


PARTS = {
    "architecture.md": [levels, rooms],
    "states.md": [transitions, diagram, reasons, kinds],
    "settings.md": [settings],
    "atpd.md": [options, facts],
    "api.md": [operations, problems],
    "check.md": [troubles],
    "control.md": [verbs, permissions],
}


def render(text):
    """Return a page with every part between marks derived anew."""
    for part in {part for parts in PARTS.values() for part in parts}:
        mark = rf"(<!-- {part.__name__} -->\n).*?(<!-- end -->)"
        text = re.sub(mark, lambda m, part=part: f"{m[1]}{part()}\n{m[2]}", text, flags=re.DOTALL)
    return text


def main():
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    for name in PARTS:
        page = DOCS / name
        page.write_text(render(page.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

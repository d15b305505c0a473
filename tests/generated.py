"""Parts of the documentation that are derived from data: ``python -m tests.generated``.

Each part stands in a page between two marks; running this writes it anew, and
``tests/test_docs.py`` fails while a page is out of date.
"""

import itertools
import os
import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"


def transitions():
    """The table of legal transitions."""
    from atp.states import TRANSITIONS

    rows = ["| event | from | to | who may | Task row | counts |", "|---|---|---|---|---|---|"]
    for row in TRANSITIONS:
        sources = ", ".join(s for s in _ordered(row.sources)) or "(new)"
        actors = "; or ".join(sorted(actor.value for actor in row.actors))
        counts = ", ".join([f"{c} + 1" for c in row.counts] + [f"{c} = 0" for c in row.resets])
        rows.append(
            f"| {row.event} | {sources} | {row.target} | {actors} | {row.row.value} | {counts} |"
        )
    return "\n".join(rows)


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

    rows = ["| reason | meaning |", "|---|---|"]
    return "\n".join(rows + [f"| {reason.value} | {reason.label} |" for reason in Reason])


def settings():
    """Every key of ``settings.ATP``, from the docstrings in ``atp/conf.py``."""
    import ast
    import inspect

    from atp import conf

    [body] = [
        node.body
        for node in ast.parse(inspect.getsource(conf)).body
        if isinstance(node, ast.ClassDef) and node.name == "Defaults"
    ]
    rows = ["| key | kind | default | meaning |", "|---|---|---|---|"]
    for node, text in itertools.pairwise(body):
        if isinstance(node, ast.AnnAssign):
            kind = ast.unparse(node.annotation).replace("|", "or")
            default = ast.unparse(node.value)
            rows.append(f"| `{node.target.id}` | {kind} | `{default}` | {text.value.value} |")
    return "\n".join(rows)


def options():
    """The options of ``manage.py atpd``."""
    from django.core.management.base import BaseCommand

    from atp.management.commands.atpd import Command

    parser = Command().create_parser("manage.py", "atpd")
    own = {a.dest for a in BaseCommand().create_parser("manage.py", "x")._actions}
    rows = ["| option | meaning |", "|---|---|"]
    for action in parser._actions:
        if action.dest not in own:
            names = ", ".join(action.option_strings)
            value = f" {action.metavar}" if action.metavar else ""
            if action.choices:
                value = " " + " or ".join(action.choices)
            elif action.dest == "processes":
                value = " N"
            text = " ".join((action.help or "").split("(default: one per")[0].split())
            rows.append(f"| `{names}{value}` | {text.strip()} |")
    return "\n".join(rows)


def facts():
    """Every line that a daemon may write to its log."""
    from logging import getLevelName

    from atp.daemon.journal import FACTS

    rows = ["| fact | level | words |", "|---|---|---|"]
    for name, (level, words) in sorted(FACTS.items()):
        rows.append(f"| `{name}` | {getLevelName(level)} | {_plain(words)} |")
    return "\n".join(rows)


def operations():
    """Every operation of the API with the permissions that it needs."""
    from atp.api.urls import urlpatterns

    rows = ["| | | permission |", "|---|---|---|"]
    for route in urlpatterns:
        view = route.callback.cls(**route.callback.initkwargs)
        path = re.sub(r"<str:(\w+)>", r"{\1}", str(route.pattern))
        for method, operation in view.operations.items():
            needed = ", ".join(f"`{name}`" for name in operation.permissions) or "none"
            rows.append(f"| `{method} {path}` | {operation.summary} | {needed} |")
    return "\n".join(rows)


def problems():
    """Every kind of problem that the API tells of."""
    from atp.api import problems as own
    from atp.web.problems import MEANINGS

    kinds = [kind[1:] for kind in (*MEANINGS, *own.MEANINGS)]
    kinds += [own.PARAMETER, own.BODY, own.FAULT]
    rows = ["| status | type | title |", "|---|---|---|"]
    for status, name, title in sorted(set(kinds)):
        rows.append(f"| {status} | `{own.URN}{name}` | {title} |")
    return "\n".join(rows)


def troubles():
    """What a scan may find."""
    from atp.store.findings import Trouble

    rows = ["| found | an Instance or a daemon that is |", "|---|---|"]
    return "\n".join(rows + [f"| `{each.value}` | {each.label} |" for each in Trouble])


def promises():
    """The modules whose tests name each promise in their docstrings."""
    import ast

    found = {f"G{number}": set() for number in range(1, 16)}
    for path in sorted(DOCS.parent.glob("tests/**/test_*.py")):
        module = ast.parse(path.read_text())
        for node in ast.walk(module):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)):
                said = re.findall(r"\bG(?:1[0-5]|[1-9])\b", ast.get_docstring(node) or "")
                for name in said:
                    found[name].add(path.relative_to(DOCS.parent / "tests").as_posix())
    rows = ["| promise | named by tests in `tests/` |", "|---|---|"]
    for name, modules in found.items():
        rows.append(f"| {name} | {', '.join(f'`{module}`' for module in sorted(modules))} |")
    return "\n".join(rows)


def _plain(words):
    """Format fields without their formats."""
    return re.sub(r"{(\w+):[^}]*}", r"{\1}", words)


PARTS = {
    "states.md": [transitions, diagram, reasons],
    "settings.md": [settings],
    "atpd.md": [options, facts],
    "api.md": [operations, problems],
    "guarantees.md": [promises],
    "check.md": [troubles],
}


def render(text):
    """Return a page with every part between marks derived anew."""
    for part in {part for parts in PARTS.values() for part in parts}:
        mark = rf"(<!-- {part.__name__} -->\n).*?(<!-- end -->)"
        text = re.sub(mark, lambda m, part=part: f"{m[1]}{part()}\n{m[2]}", text, flags=re.DOTALL)
    return text


def _ordered(states):
    from atp.states import State

    return [state for state in State if state in states]


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

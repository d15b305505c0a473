"""The remedies that ATP prints: each command that a message names is one of manage.py."""

import ast
import re
import shlex

from django.core.management import load_command_class
from django.db import connections

from atp.operations import base as migrated

from .imports import ROOT

# What follows "manage.py " in a message, with a call of it. A message may leave out arguments.
REMEDIES = {
    "atp check --pending --deep": "atp check --pending --deep",
    "atp check": "atp check",
    "atp schedule resume {}": "atp schedule resume dem.scenes",
    "atp tailer forget": "atp tailer forget dem.scenes --shard 0",
    "atp tailer seek": "atp tailer seek dem.scenes --shard 0 --position 5",
    "atp tailer show {}": "atp tailer show dem.scenes",
    # "manage.py atp takes any number", and what other modules complete from the table of verbs.
    "atp takes any number": "atp status",
    "atp": "atp status",
    "atpd": "atpd",
    "migrate": "migrate",
}
_COMMAND = re.compile(r"manage\.py ((?:--)?[\w{][^.,;:`<\"'()]*)")


def messages():
    """Yield each text of the package that is no docstring, with the file that it is in."""
    for path in sorted((ROOT / "atp").rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        passed = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                passed |= {id(part) for part in node.values}
        for node in nodes:
            if id(node) not in passed:
                yield path, text_of(node)
    for path in sorted((ROOT / "atp" / "templates").rglob("*.html")):
        yield path, re.sub(r"{{.*?}}", "{}", path.read_text())


def text_of(node):
    """Return the text of a string; ``{}`` stands for a value in it."""
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        return "".join(parts)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def remedies():
    """Yield what follows "manage.py " in each message, up to the next mark."""
    for path, text in messages():
        for found in _COMMAND.findall(" ".join(text.split())):
            yield path.relative_to(ROOT), found.strip()


def remedy_of(found):
    """Return the longest remedy that a text begins with, None if there is none."""
    fits = [
        known
        for known in REMEDIES
        if found == known or (known != "atp" and re.match(rf"{re.escape(known)} (?!-|{{)", found))
    ]
    return max(fits, key=len, default=None)


def parse(command):
    """Parse a call as manage.py does. Raises CommandError for what it does not take."""
    name, *arguments = shlex.split(command)
    app = "atp" if name in ("atp", "atpd") else "django.core"
    parser = load_command_class(app, name).create_parser("manage.py", name)
    parser.called_from_command_line = False
    return parser.parse_args(arguments)


def test_every_remedy_is_known_and_a_command(monkeypatch):
    """A new message with a command needs a row in REMEDIES."""
    found = {(str(path), text): remedy_of(text) for path, text in remedies()}
    assert len(found) > 10
    assert [each for each, known in found.items() if known is None] == []
    assert set(REMEDIES) == set(found.values()), "a remedy that no message names"
    for command in REMEDIES.values():
        parse(command)
    for alias in ("default", "queue"):
        monkeypatch.setitem(connections.settings, alias, connections.settings["default"])
        command = migrated.migrate_command(alias).removeprefix("manage.py ")
        assert parse(command).database == alias

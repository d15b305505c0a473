"""Tests that each ``manage.py`` command in ATP's messages exists."""

import ast
import re
import shlex

import pytest
from django.core.management import load_command_class
from django.db import connections

from atp.operations import base as migrated

from .imports import ROOT

# The command in a message, and a complete call of it. A message can leave out arguments.
REMEDIES = {
    "atp check --pending --deep": "atp check --pending --deep",
    "atp check": "atp check",
    "atp schedule resume {}": "atp schedule resume dem.scenes",
    "atp tailer forget": "atp tailer forget dem.scenes --shard 0",
    "atp tailer seek": "atp tailer seek dem.scenes --shard 0 --position 5",
    "atp tailer show {}": "atp tailer show dem.scenes",
    # A text that is no command, and texts to which code appends the name of an operation.
    "atp takes any number": "atp status",
    "atp": "atp status",
    "atpd --executor {}": "atpd --executor engine",
    "atpd": "atpd",
    "migrate": "migrate",
}
_COMMAND = re.compile(r"manage\.py ((?:--)?[\w{][^.,;:`<\"'()]*)")


def messages():
    """Yield each string of the package that is not a docstring, with the path of its file."""
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
    """Yield the text after "manage.py " in each message, up to a punctuation mark."""
    for path, text in messages():
        for found in _COMMAND.findall(" ".join(text.split())):
            yield path.relative_to(ROOT), found.strip()


def remedy_of(found):
    """Return the longest key of REMEDIES with which a text begins, or None."""
    fits = [
        known
        for known in REMEDIES
        if found == known or (known != "atp" and re.match(rf"{re.escape(known)} (?!-|{{)", found))
    ]
    return max(fits, key=len, default=None)


def parse(command):
    """Parse a command as manage.py does. Raises CommandError for invalid arguments."""
    name, *arguments = shlex.split(command)
    app = "atp" if name in ("atp", "atpd") else "django.core"
    parser = load_command_class(app, name).create_parser("manage.py", name)
    parser.called_from_command_line = False
    return parser.parse_args(arguments)


@pytest.mark.slow
def test_every_command_in_a_message_exists_and_is_listed(monkeypatch):
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

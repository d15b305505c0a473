"""The rooms of the house: their size, and words that may not come back (docs/architecture.md)."""

import ast
import re
from collections import Counter
from itertools import pairwise

import pytest

from atp.store import get_store

from .imports import sources

MODULES = [(name, source) for name, source, _ in sources()]
LARGEST_ROOM, LARGEST_TOP, LONGEST_MODULE = 16, 14, 250
# Words of the old house. The table of words in docs/architecture.md says what to say instead.
GONE = (
    *("acting", "alteration", "bury", "condemned", "controls", "crew", "duty", "ear", "hand"),
    *("hearing", "ledger", "liaison", "listening", "modes", "news", "place", "places", "prints"),
    *("starts", "steering", "strays", "surroundings", "tally"),
)


def test_rooms_are_small():
    rooms = Counter(name.rpartition(".")[0] for name, _ in MODULES)
    packages = {name for name, _, is_package in sources() if is_package}
    rooms.subtract(name.rpartition(".")[0] for name in packages)
    assert {room: count for room, count in rooms.items() if count > LARGEST_ROOM} == {}
    assert rooms["atp"] <= LARGEST_TOP


@pytest.mark.parametrize(("name", "source"), MODULES, ids=[name for name, _ in MODULES])
def test_modules_are_short(name, source):
    assert len(source.splitlines()) <= LONGEST_MODULE


def test_parts_of_a_store_do_not_take_each_others_names():
    """It is composed of mixins, which share one space of names: the first would hide the other."""
    taken = {}
    for part in type(get_store()).__mro__:
        for name in vars(part):
            if name.startswith("_") and not name.startswith(("__", "_abc_")):
                taken.setdefault(name, []).append(part)
    hidden = {
        name: [part.__qualname__ for part in parts]
        for name, parts in taken.items()
        if any(not issubclass(first, then) for first, then in pairwise(parts))
    }
    assert hidden == {}


@pytest.mark.parametrize(("name", "source"), MODULES, ids=[name for name, _ in MODULES])
def test_old_words_do_not_come_back(name, source):
    """As the names of modules and classes, where ``ls`` and imports show them."""
    named = [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    words = {name.rpartition(".")[2], *(each.lower() for each in named)}
    words |= {re.sub(r"(?<!^)(?=[A-Z])", "_", each).lower() for each in named}
    assert words & {*GONE} == set()

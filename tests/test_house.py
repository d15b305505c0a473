"""The parts of a store share one space of names (docs/architecture.md)."""

from itertools import pairwise

from atp.store import get_store


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

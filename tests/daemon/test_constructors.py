"""No part of a daemon is made of more than five others."""

import dataclasses
import importlib
import inspect
import pkgutil

import pytest

from atp import daemon

LIMIT = 5


def classes():
    """Yield every class of the daemon that is more than a value."""
    for module in pkgutil.walk_packages(daemon.__path__, f"{daemon.__name__}."):
        for thing in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(thing) and thing.__module__ == module.name:
                is_frozen = dataclasses.is_dataclass(thing) and thing.__dataclass_params__.frozen
                if not is_frozen and not issubclass(thing, tuple):
                    yield thing


def arguments(thing):
    """Return the names of the arguments of a class's own constructor, or an inherited one."""
    if "__init__" not in dir(thing) or thing.__init__ is object.__init__:
        return []
    parameters = list(inspect.signature(thing.__init__).parameters.values())[1:]
    return [each.name for each in parameters if each.kind is not each.VAR_KEYWORD]


@pytest.mark.parametrize("thing", [*classes()], ids=lambda thing: thing.__qualname__)
def test_at_most_five_arguments(thing):
    assert len(arguments(thing)) <= LIMIT, arguments(thing)


def test_a_constructor_with_more_is_found():
    class Large:
        def __init__(self, a, b, c, d, e, f):
            pass

    @dataclasses.dataclass
    class Wide:
        a: int
        b: int
        c: int
        d: int
        e: int
        f: int = 0

    assert len(arguments(Large)) == len(arguments(Wide)) == LIMIT + 1

"""The placeholder that `result(…)` returns, for passing the output of a node to other nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from ..exceptions import NoResult

# The tag of a result in JSON; its value contains the names of the nodes and the path.
TAG = "$result"
# The types of most values in inputs, which contain no Result.
_PLAIN = frozenset({str, int, float, bool, type(None)})


@dataclass(frozen=True, eq=False)
class Result:
    """A placeholder for the output of a node, or for the list of the outputs of several nodes.

    ``names`` are the names of the nodes. The placeholder can be passed only to nodes of the same
    graph. ``at`` is the path to a part of the output: keys and indexes, in order. Code that uses
    the placeholder like the output itself, for example in an f-string or a comparison, raises
    TypeError, because the output is not known before the node has run. ``repr()`` works.
    """

    names: tuple[str, ...]
    is_list: bool = False
    at: tuple[str | int, ...] = ()

    def __getitem__(self, key: str | int) -> Result:
        """Return a placeholder for an entry of the output, or of each output in a list."""
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise TypeError(f"A result has keys and indexes, not {key!r}.")
        if self.is_list and not self.at and isinstance(key, int):
            return Result((self.names[key],))
        return replace(self, at=(*self.at, key))

    def __iter__(self) -> Iterator[Result]:
        if not self.is_list:
            raise TypeError(
                "The number of entries in a result is not known before its node has run."
            )
        return (replace(self, names=(name,), is_list=False) for name in self.names)

    def __len__(self) -> int:
        if not self.is_list:
            raise TypeError(
                "The number of entries in a result is not known before its node has run."
            )
        return len(self.names)

    def value(self, output_of: Callable[[str], Any]) -> Any:
        """Return the value of this placeholder. Raises NoResult.

        ``output_of(name)`` must return the output of a node.
        """
        values = [_read_entry(output_of(name), name, self.at) for name in self.names]
        return values if self.is_list else values[0]


def _make_refusal(name: str) -> Callable[..., Any]:
    """Return a special method with this name, such as ``__add__``, that raises TypeError."""

    def refuse(self: Result, *_: object) -> Any:
        raise TypeError(
            f"{self!r} stands for an output that is not known before its node has run. It cannot "
            f"be used as a value here ({name}). Give the result itself to a node, as an argument "
            "or in a dict, list or tuple, and compute with the output in that node's handler."
        )

    refuse.__name__ = name
    return refuse


_ARITHMETIC = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor"
_OTHERS = "neg pos abs invert round trunc floor ceil int float complex index"
for _name in (
    *("__bool__", "__str__", "__format__", "__bytes__", "__fspath__", "__contains__", "__hash__"),
    *(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge")),
    *(f"__{side}{name}__" for name in _ARITHMETIC.split() for side in ("", "r")),
    *(f"__{name}__" for name in _OTHERS.split()),
):
    setattr(Result, _name, _make_refusal(_name))


class Placeholder(Result):
    """A Result that was checked to be in the inputs of a node. Only these Results can be stored."""


def with_placeholders(value: Any) -> Any:
    """Return a copy of inputs in which each Result is replaced by a Placeholder."""
    return _replace_results(
        value, lambda found: Placeholder(found.names, found.is_list, found.at), ()
    )


def extract_results(
    args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any], tuple[str, ...]]:
    """Replace each Result in arguments by a Placeholder; also return the names of their nodes."""
    found = results_in((args, kwargs))
    if not found:
        return args, kwargs, ()
    names = dict.fromkeys(name for result in found for name in result.names)
    return with_placeholders(args), with_placeholders(kwargs), tuple(names)


def encode_result(result: Placeholder) -> list[Any]:
    """Return the JSON value that stands for a Placeholder in stored inputs."""
    return [list(result.names) if result.is_list else result.names[0], *result.at]


def decode_result(value: list[Any]) -> Result:
    """Return the Result for a JSON value from :func:`encode_result`. Raises ValueError."""
    names, *at = value
    is_list = isinstance(names, list)
    names = tuple(names) if is_list else (names,)
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{value!r} does not name nodes")
    return Result(names, is_list, tuple(at))


def results_in(value: Any) -> list[Result]:
    """Return all Results in inputs, at any depth."""
    found: list[Result] = []

    def collect(result: Result) -> Result:
        found.append(result)
        return result

    _replace_results(value, collect, ())
    return found


def resolve_results(value: Any, output_of: Callable[[str], Any]) -> Any:
    """Return a copy of inputs with each Result replaced by its :meth:`Result.value`."""
    return _replace_results(value, lambda found: found.value(output_of), ())


def comparable_inputs(value: Any) -> Any:
    """Return inputs with each Result replaced by a tuple, because Results cannot be compared."""
    return _replace_results(value, lambda found: (TAG, found.names, found.is_list, found.at), ())


def _replace_results(value: Any, change: Callable[[Result], Any], around: tuple[int, ...]) -> Any:
    """Replace each Result in dicts, lists and tuples by ``change(result)``; return the new value.

    A container without a Result stays the same object. ``around`` contains the ids of all
    containers around the value, so that a container that contains itself is not entered twice.
    """
    if isinstance(value, Result):
        return change(value)
    if not isinstance(value, dict | list | tuple) or id(value) in around:
        return value
    inside = (*around, id(value))
    places = value.items() if isinstance(value, dict) else enumerate(value)
    changed = {
        place: new
        for place, item in places
        if type(item) not in _PLAIN and (new := _replace_results(item, change, inside)) is not item
    }
    return _copy_with(value, changed) if changed else value


def _copy_with(value: Any, changed: Mapping[Any, Any]) -> Any:
    """Return a copy of a dict, list or tuple with these items changed."""
    if isinstance(value, tuple):
        items = [changed.get(place, item) for place, item in enumerate(value)]
        return value._make(items) if hasattr(value, "_make") else type(value)(items)
    found = copy(value)
    for place, item in changed.items():
        found[place] = item
    return found


def _read_entry(value: Any, name: str, at: tuple[str | int, ...]) -> Any:
    for number, key in enumerate(at):
        try:
            value = value[key]
        except (LookupError, TypeError):
            way = "".join(f"[{each!r}]" for each in at[: number + 1])
            raise NoResult(f"The result of {name!r} has no entry {way}.") from None
    return value

"""A graph as a list: each box is indented below the last that it waits for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from .grouping import Box, grouped
from .vertex import Link, Vertex


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A box of the list: how deep it stands, and the labels of the boxes that it comes after."""

    box: Box
    depth: int
    after: tuple[str, ...]


def outline(vertices: Collection[Vertex], links: Collection[Link]) -> Iterator[Entry]:
    """Give the boxes of a graph in the order of the list."""
    found = grouped(vertices, links)
    after: defaultdict[int, list[int]] = defaultdict(list)
    for line in found.lines:
        after[line.downstream].append(line.upstream)
    below: defaultdict[int | None, list[int]] = defaultdict(list)
    for number in range(len(found.boxes)):
        # Of those in the last layer the last, so that what joins branches stands below them.
        parent = max(after[number], key=lambda n: (found.boxes[n].layer, n), default=None)
        below[parent].append(number)
    waiting = [(number, 0) for number in reversed(below[None])]
    while waiting:
        number, depth = waiting.pop()
        yield Entry(
            box=found.boxes[number],
            depth=depth,
            after=tuple(found.boxes[upstream].label for upstream in sorted(after[number])),
        )
        waiting += [(each, depth + 1) for each in reversed(below[number])]

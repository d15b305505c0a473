"""A graph as an indented list: each box stands below the last box that it waits for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from .grouping import Box, grouped
from .vertex import Link, Vertex


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A box in the list: its depth of indentation, and the labels of the boxes it waits for."""

    box: Box
    depth: int
    after: tuple[str, ...]


def outline(vertices: Collection[Vertex], links: Collection[Link]) -> Iterator[Entry]:
    """Yield the boxes of a graph in the order of the list."""
    found = grouped(vertices, links)
    after: defaultdict[int, list[int]] = defaultdict(list)
    for line in found.lines:
        after[line.downstream].append(line.upstream)
    below: defaultdict[int | None, list[int]] = defaultdict(list)
    for number in range(len(found.boxes)):
        # The parent is the last box of the latest layer: a join stands below all its branches.
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

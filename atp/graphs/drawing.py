"""The picture of a graph in numbers: where boxes stand, and how lines lead from one to another.

Layers stand side by side, the first to the left. All lengths are in pixels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from itertools import accumulate, pairwise

from ..states import State
from .fitting import begun, fitted
from .grouping import Box, Boxes, Line, grouped
from .ordering import Ordered, ordered
from .vertex import ORDER, Link, Vertex

WIDTH, HEIGHT = 180, 48
# Between layers, between boxes, the height of the point where a line passes a layer, the edge.
BESIDE, BELOW, POINT, EDGE = 44, 12, 10, 8
# Letters that fit into a box, of the larger and of the smaller kind.
LARGE, SMALL = 20, 27
# Rounds in which boxes move to where their neighbours are.
ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class DrawnBox:
    """A box at its place; ``bars`` are the shares of the states of several nodes, as lengths."""

    box: Box
    x: float
    y: float
    label: str
    told: str
    bars: tuple[tuple[str, float, float], ...] = ()
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def title(self) -> str:
        """All of what the box has room for a part of."""
        type = f" ({self.box.type})" if self.box.vertex else ""
        return f"{self.box.label}{type}: {self.box.told}"

    @property
    def texts(self) -> dict[str, float]:
        """Where its texts begin, and their lines: ``x``, ``name`` and ``told``."""
        lift = 3 if self.bars else 0
        return {"x": self.x + 10, "name": self.y + 21 - lift, "told": self.y + 38 - lift}

    @property
    def behind(self) -> tuple[float, float]:
        """Where the box behind stands that says that there are several."""
        return self.x + 4, self.y - 4

    @property
    def foot(self) -> float:
        """Where the bars begin."""
        return round(self.y + self.height - 6, 1)


@dataclass(frozen=True, kw_only=True)
class DrawnLine:
    """A line with its ``path`` as SVG has it; ``state`` is that of the box where it begins."""

    line: Line
    path: str
    upstream: Box
    downstream: Box

    @property
    def title(self) -> str:
        """The boxes that it joins, and its edges."""
        count = f", {self.line.count:,} edges" if self.line.count > 1 else ""
        anyway = ", however that ends" if self.line.always else ""
        return f"{self.upstream.label} → {self.downstream.label}{anyway}{count}"

    @property
    def is_open(self) -> bool:
        """Whether something at its end still waits for something at its beginning."""
        return self.downstream.waiting > 0 and self.upstream.state != State.FINISHED


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A picture: ``found`` are its boxes and lines before they had a place."""

    found: Boxes
    boxes: tuple[DrawnBox, ...]
    lines: tuple[DrawnLine, ...]
    width: float
    height: float

    @property
    def words(self) -> str:
        """The picture in a sentence, for those who do not see it."""
        counts: Counter[str] = Counter()
        for box in self.found.boxes:
            counts += box.counts
        states = ", ".join(f"{counts[state]:,} {state.lower()}" for state in ORDER if counts[state])
        several = "" if self.found.layers == 1 else "s"
        return f"{counts.total():,} nodes in {self.found.layers} layer{several}: {states}."


def drawn(vertices: Collection[Vertex], links: Collection[Link]) -> Drawing:
    """Return the picture of a graph. Of 10,000 nodes it takes a tenth of a second."""
    found = grouped(vertices, links)
    order = ordered(found)
    centres = _centres(found, order)
    top = min((y - _height(found, n) / 2 for n, y in centres.items()), default=0)
    bottom = max((y + _height(found, n) / 2 for n, y in centres.items()), default=0)
    spots: dict[int, tuple[float, float]] = {}
    for layer, row in enumerate(order.layers):
        x = EDGE + layer * (WIDTH + BESIDE)
        spots |= {number: (x, round(centres[number] - top + EDGE, 1)) for number in row}
    return Drawing(
        found=found,
        boxes=tuple(_drawn_box(box, *spots[number]) for number, box in enumerate(found.boxes)),
        lines=tuple(
            DrawnLine(
                line=line,
                path=_path([spots[number] for number in route]),
                upstream=found.boxes[line.upstream],
                downstream=found.boxes[line.downstream],
            )
            for line, route in zip(found.lines, order.routes, strict=True)
        ),
        width=2 * EDGE + len(order.layers) * (WIDTH + BESIDE) - BESIDE if order.layers else 0,
        height=round(bottom - top + 2 * EDGE, 1),
    )


def _drawn_box(box: Box, x: float, y: float) -> DrawnBox:
    return DrawnBox(
        box=box,
        x=x,
        y=y - HEIGHT / 2,
        label=fitted(box.label, LARGE),
        told=begun(box.told, SMALL),
        bars=() if box.vertex is not None else _bars(box, x),
    )


def _bars(box: Box, x: float) -> tuple[tuple[str, float, float], ...]:
    """Return the states of a box with the beginning and the length of their share of its width.

    The share of what is there is never too small to be seen.
    """
    counts = list(box.by_state())
    least, whole = 3, WIDTH - 20
    spare = whole - least * len(counts)
    lengths = [round(least + spare * count / box.count, 1) for _, count in counts]
    begins = accumulate(lengths, initial=x + 10)
    return tuple(
        (state, round(begin, 1), length)
        for (state, _), begin, length in zip(counts, begins, lengths, strict=False)
    )


def _height(found: Boxes, number: int) -> int:
    return HEIGHT if number < len(found.boxes) else POINT


def _centres(found: Boxes, order: Ordered) -> dict[int, float]:
    """Return how far down the centre of each box is, near its neighbours and apart from others."""
    offsets: dict[int, float] = {}
    for row in order.layers:
        end = 0.0
        for number in row:
            height = _height(found, number)
            offsets[number] = end + height / 2
            end += height + BELOW
    beside: dict[int, list[int]] = {number: [] for number in offsets}
    for route in order.routes:
        for upstream, downstream in pairwise(route):
            beside[upstream].append(downstream)
            beside[downstream].append(upstream)
    longest = max((offsets[row[-1]] for row in order.layers), default=0)
    centres = {
        n: offsets[n] + (longest - offsets[row[-1]]) / 2 for row in order.layers for n in row
    }
    for _ in range(ROUNDS):
        for row in order.layers:
            wanted = [_mean([centres[other] for other in beside[n]], centres[n]) for n in row]
            apart = [offsets[number] for number in row]
            centres |= zip(row, _apart(wanted, apart), strict=True)
    return centres


def _mean(numbers: list[float], own: float) -> float:
    return sum(numbers) / len(numbers) if numbers else own


def _apart(wanted: list[float], offsets: list[float]) -> list[float]:
    """Return places as near to those wanted as they can be in this order, with their offsets.

    Those that would come too near to each other are moved together, by the mean of what is wanted.
    """
    runs: list[list[float]] = []  # sums of what is wanted less the offset, and numbers of places
    for place, offset in zip(wanted, offsets, strict=True):
        runs.append([place - offset, 1])
        while len(runs) > 1 and runs[-2][0] / runs[-2][1] >= runs[-1][0] / runs[-1][1]:
            total, count = runs.pop()
            runs[-1][0] += total
            runs[-1][1] += count
    moved = [total / count for total, count in runs for _ in range(int(count))]
    return [begin + offset for begin, offset in zip(moved, offsets, strict=True)]


def _path(points: list[tuple[float, float]]) -> str:
    """Return a line from the right of the first to the left of the last, level at each end."""
    (x, y), *rest = points
    x += WIDTH
    parts = [f"M{x:g} {y:g}"]
    for number, (left, height) in enumerate(rest, start=1):
        middle = (x + left) / 2
        parts.append(f"C{middle:g} {y:g} {middle:g} {height:g} {left:g} {height:g}")
        if number < len(rest):
            x = left + WIDTH
            parts.append(f"H{x:g}")
        y = height
    return "".join(parts)

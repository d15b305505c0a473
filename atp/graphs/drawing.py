"""The picture of a graph as numbers: the positions of boxes and the paths of lines.

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
# The gaps between layers and between boxes, the height of a line that passes a layer, the margin.
BESIDE, BELOW, POINT, EDGE = 44, 12, 10, 8
# The number of letters that fit into a box, in the larger and in the smaller font.
LARGE, SMALL = 20, 27
# Rounds in which boxes move to where their neighbours are.
ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class DrawnBox:
    """A Box with its position; ``bars`` show the states of several nodes: state, begin, length."""

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
        """The full text, of which the box shows a part."""
        type = f" ({self.box.type})" if self.box.vertex else ""
        return f"{self.box.label}{type}: {self.box.told}"

    @property
    def texts(self) -> dict[str, float]:
        """The positions of the texts: ``x``, and the base lines of ``name`` and ``told``."""
        lift = 3 if self.bars else 0
        return {"x": self.x + 10, "name": self.y + 21 - lift, "told": self.y + 38 - lift}

    @property
    def behind(self) -> tuple[float, float]:
        """The position of the box drawn behind it, which shows that there are several nodes."""
        return self.x + 4, self.y - 4

    @property
    def foot(self) -> float:
        """The y position of the bars."""
        return round(self.y + self.height - 6, 1)


@dataclass(frozen=True, kw_only=True)
class DrawnLine:
    """A line with its ``path`` in SVG, between two boxes."""

    line: Line
    path: str
    upstream: Box
    downstream: Box

    @property
    def title(self) -> str:
        """The labels of the two boxes, and the number of edges."""
        count = f", {self.line.count:,} edges" if self.line.count > 1 else ""
        anyway = ", however that ends" if self.line.always else ""
        return f"{self.upstream.label} → {self.downstream.label}{anyway}{count}"

    @property
    def is_open(self) -> bool:
        """Whether a node at its end may still wait for a node at its beginning."""
        return self.downstream.waiting > 0 and self.upstream.state != State.FINISHED


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A picture; ``found`` are its boxes and lines without positions."""

    found: Boxes
    boxes: tuple[DrawnBox, ...]
    lines: tuple[DrawnLine, ...]
    width: float
    height: float

    @property
    def words(self) -> str:
        """The picture in a sentence, for people who do not see it."""
        counts: Counter[str] = Counter()
        for box in self.found.boxes:
            counts += box.counts
        states = ", ".join(f"{counts[state]:,} {state.lower()}" for state in ORDER if counts[state])
        several = "" if self.found.layers == 1 else "s"
        return f"{counts.total():,} nodes in {self.found.layers} layer{several}: {states}."


def drawn(vertices: Collection[Vertex], links: Collection[Link]) -> Drawing:
    """Return the picture of a graph. It takes a tenth of a second for 10,000 nodes."""
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
    """Return a bar for each state of a box: state, begin and length; the lengths show the numbers.

    No bar is too short to be seen.
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
    """Return the y position of each box's centre: near its neighbours, apart from other boxes."""
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
    """Return positions as near to the wanted ones as possible, in this order and at these offsets.

    Positions that would overlap are moved as one group, to the mean of their wanted positions.
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
    """Return an SVG path from the right of the first point to the left of the last.

    The path is level at each point.
    """
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

"""Boxes: many nodes of one Type and layer share one box.

A picture of thousands of boxes is of no use, so nodes of one Type and layer are grouped. If that
leaves too many boxes or lines, smaller groups are formed too, and successive layers are folded
into one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from ..states import State
from .layering import layers
from .vertex import ORDER, Link, Vertex

# The maxima of a picture: nodes of one kind with own boxes, boxes, pieces of lines, layers.
ALIKE, MOST_BOXES, MOST_PIECES, MOST_LAYERS = 20, 250, 1500, 60
# The state of a box with several nodes is the first of these that one of its nodes has.
_FIRST = (State.FAILED, State.RUNNING, State.PAUSED, State.SCHEDULED, State.ACCEPTED)


@dataclass(kw_only=True)
class Box:
    """One node, or several of one layer; for several ``vertex`` is None.

    ``type`` is the Type of all its nodes, empty if they have several. ``counts`` are the numbers of
    nodes by state. ``waiting`` is how many of them wait for other nodes.
    """

    layer: int
    type: str
    vertex: Vertex | None = None
    counts: Counter[str] = field(default_factory=Counter)
    waiting: int = 0

    @property
    def count(self) -> int:
        return self.counts.total()

    @property
    def state(self) -> str:
        """The state that stands for all: FAILED if a node has FAILED, FINISHED only if all have."""
        return next((state for state in _FIRST if self.counts[state]), State.FINISHED)

    @property
    def is_blocked(self) -> bool:
        """Whether all its nodes wait for other nodes."""
        return bool(self.waiting) and self.waiting == self.count

    @property
    def label(self) -> str:
        if self.vertex is not None:
            return self.vertex.name
        return f"{self.type or 'several Types'} × {self.count:,}"

    @property
    def told(self) -> str:
        """The state of the node in words; for several nodes, the number in each state."""
        if self.vertex is not None:
            waits = f", waits for {self.vertex.waits:,}" if self.vertex.waits else ""
            reason = f" ({self.vertex.reason.lower()})" if self.vertex.reason else ""
            return f"{self.vertex.state.lower()}{reason}{waits}"
        return ", ".join(f"{count:,} {state.lower()}" for state, count in self.by_state())

    def by_state(self) -> Iterator[tuple[str, int]]:
        """Yield the states that its nodes have, with their numbers."""
        return ((state, self.counts[state]) for state in ORDER if self.counts[state])


@dataclass(frozen=True, kw_only=True)
class Line:
    """The edges between two boxes, which are given by number; ``count`` is how many.

    ``always`` if each of these edges lets its second node run however the first ends.
    """

    upstream: int
    downstream: int
    count: int
    always: bool


@dataclass(frozen=True, kw_only=True)
class Boxes:
    """The boxes of a graph and the lines between them. A box is named by its place in ``boxes``.

    ``layers`` is the number of layers of the graph; the picture folds each ``folded`` of them into
    one.
    """

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    layers: int
    folded: int = 1


def grouped(vertices: Collection[Vertex], links: Collection[Link], alike: int = ALIKE) -> Boxes:
    """Return the boxes of a graph; more than ``alike`` nodes of one Type and layer share a box."""
    depth = layers([vertex.key for vertex in vertices], ((up, down) for up, down, _ in links))
    deepest = max(depth.values(), default=0)
    for folded, limit, by_type in _ways(deepest, alike):
        drawn = {key: layer // folded for key, layer in depth.items()}
        boxes, of = _boxes(vertices, drawn, limit, by_type=by_type)
        lines = _lines(links, of, boxes)
        pieces = sum(boxes[each.downstream].layer - boxes[each.upstream].layer for each in lines)
        if len(boxes) <= MOST_BOXES and pieces <= MOST_PIECES:
            break
    return Boxes(
        boxes=tuple(boxes),
        lines=tuple(lines),
        layers=deepest + 1 if vertices else 0,
        folded=folded,
    )


def _ways(deepest: int, alike: int) -> Iterator[tuple[int, int, bool]]:
    """Yield the ways to draw a graph, the most detailed first.

    Each is a triple: the number of layers that are folded into one, the number of nodes of one kind
    that still get boxes of their own, and whether a box has nodes of one Type only. The last way
    gives a single box.
    """
    folded = deepest // MOST_LAYERS + 1
    if folded == 1:
        yield from ((1, alike, True), (1, alike // 4, True))
    # Lines within a layer are not drawn. In a folded layer no node gets a box of its own, as it
    # would seem to have no edges.
    yield from ((folded, 1, True), (folded, 1, False))
    while folded <= deepest:
        folded *= 2
        yield from ((folded, 1, True), (folded, 1, False))


def _boxes(
    vertices: Iterable[Vertex], depth: dict[int, int], limit: int, *, by_type: bool
) -> tuple[list[Box], dict[int, int]]:
    """Return the boxes in the order of layers, and the number of each node's box."""
    kinds: defaultdict[tuple[int, str], list[Vertex]] = defaultdict(list)
    for vertex in vertices:
        kinds[depth[vertex.key], vertex.type if by_type else ""].append(vertex)
    boxes: list[Box] = []
    of: dict[int, int] = {}
    for layer, type in sorted(kinds, key=lambda kind: kind[0]):
        alike = kinds[layer, type]
        shares = [alike] if len(alike) > limit else [[vertex] for vertex in alike]
        for members in shares:
            of |= dict.fromkeys((vertex.key for vertex in members), len(boxes))
            boxes.append(_box(layer, members))
    return boxes, of


def _box(layer: int, members: list[Vertex]) -> Box:
    types = {vertex.type for vertex in members}
    return Box(
        layer=layer,
        type=types.pop() if len(types) == 1 else "",
        vertex=members[0] if len(members) == 1 else None,
        counts=Counter(vertex.state for vertex in members),
        waiting=sum(vertex.waits > 0 for vertex in members),
    )


def _lines(links: Iterable[Link], of: dict[int, int], boxes: list[Box]) -> list[Line]:
    """Return the lines between boxes. Edges within a folded layer are left out."""
    counts: Counter[tuple[int, int]] = Counter()
    strict: set[tuple[int, int]] = set()
    for upstream, downstream, always in links:
        pair = of.get(upstream, -1), of.get(downstream, -1)
        if min(pair) >= 0 and boxes[pair[0]].layer < boxes[pair[1]].layer:
            counts[pair] += 1
            if not always:
                strict.add(pair)
    return [
        Line(upstream=up, downstream=down, count=count, always=(up, down) not in strict)
        for (up, down), count in counts.items()
    ]

"""Draw graphs as pictures, as text for Mermaid, and as indented lists.

Nodes are grouped into boxes, and the boxes are placed in layers.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple
from unicodedata import east_asian_width
from uuid import UUID

from ..states import State

# The order of states in texts that count nodes by state.
ORDER = (
    *(State.FINISHED, State.FAILED, State.RUNNING, State.PAUSED),
    *(State.SCHEDULED, State.ACCEPTED),
)


class Vertex(NamedTuple):
    """A node of a drawn graph, with the ``state`` and ``reason`` of its Instance.

    ``key`` is the primary key of the Instance. ``waits`` is the number of edges that the node waits
    for. ``is_undo`` is True if the node undoes another node.
    """

    key: int
    name: str
    type: str
    state: str
    reason: str = ""
    waits: int = 0
    uuid: UUID | None = None
    is_undo: bool = False


class Link(NamedTuple):
    """An edge between two nodes, which are given by their keys.

    If ``always`` is True, the downstream node runs however the upstream node ends, otherwise only
    if the upstream node has FINISHED.
    """

    upstream: int
    downstream: int
    always: bool = False


# Boxes, each for one node, or for many nodes of one Type and layer.
#
# A picture with thousands of boxes is useless, so nodes of one Type and layer are grouped. If too
# many boxes or lines remain, smaller groups are formed too, and successive layers are folded into
# one.

# The maxima for a picture: nodes of one Type and layer with a box each, boxes, pieces of lines
# (between adjacent layers), layers.
ALIKE, MOST_BOXES, MOST_PIECES, MOST_LAYERS = 20, 250, 1500, 60
# The state of a box with several nodes is the first of these that one of its nodes has.
_STATES_BY_RANK = (State.FAILED, State.RUNNING, State.PAUSED, State.SCHEDULED, State.ACCEPTED)


@dataclass(kw_only=True)
class Box:
    """A box of the picture: one node, or several nodes of one layer.

    ``vertex`` is the node, or None if there are several. ``type`` is the Type of all nodes in the
    box, or "" if they have several Types. ``counts`` are the numbers of nodes by state. ``waiting``
    is the number of nodes that wait for other nodes.
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
        """The state of the box: FAILED if one node has FAILED, FINISHED only if all nodes have."""
        return next((state for state in _STATES_BY_RANK if self.counts[state]), State.FINISHED)

    @property
    def is_blocked(self) -> bool:
        """True if all nodes in the box wait for other nodes."""
        return bool(self.waiting) and self.waiting == self.count

    @property
    def label(self) -> str:
        if self.vertex is not None:
            return self.vertex.name
        return f"{self.type or 'several Types'} × {self.count:,}"

    @property
    def told(self) -> str:
        """The state of the single node as text; for several nodes, the number in each state."""
        if self.vertex is not None:
            waits = f", waits for {self.vertex.waits:,}" if self.vertex.waits else ""
            reason = f" ({self.vertex.reason.lower()})" if self.vertex.reason else ""
            return f"{self.vertex.state.lower()}{reason}{waits}"
        return ", ".join(f"{count:,} {state.lower()}" for state, count in self.by_state())

    def by_state(self) -> Iterator[tuple[str, int]]:
        """Yield each state that occurs in the box, with the number of its nodes."""
        return ((state, self.counts[state]) for state in ORDER if self.counts[state])


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of the picture, which stands for all edges between two boxes.

    ``upstream`` and ``downstream`` are the numbers of the boxes, and ``count`` is the number of
    edges. ``always`` is True if it is True for each of these edges.
    """

    upstream: int
    downstream: int
    count: int
    always: bool


@dataclass(frozen=True, kw_only=True)
class Boxes:
    """The boxes of a graph, and the lines between these boxes.

    The number of a box is its index in ``boxes``. ``layers`` is the number of layers of the graph.
    The picture shows each group of ``folded`` successive layers as a single layer.
    """

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    layers: int
    folded: int = 1


def group_into_boxes(
    vertices: Collection[Vertex], links: Collection[Link], alike: int = ALIKE
) -> Boxes:
    """Group the nodes of a graph into boxes.

    If more than ``alike`` nodes have the same Type and the same layer, they share a box.
    """
    depth = layers([vertex.key for vertex in vertices], ((up, down) for up, down, _ in links))
    deepest = max(depth.values(), default=0)
    for folded, limit, by_type in _levels_of_detail(deepest, alike):
        drawn = {key: layer // folded for key, layer in depth.items()}
        boxes, box_of = _make_boxes(vertices, drawn, limit, by_type=by_type)
        lines = _make_lines(links, box_of, boxes)
        pieces = sum(boxes[each.downstream].layer - boxes[each.upstream].layer for each in lines)
        if len(boxes) <= MOST_BOXES and pieces <= MOST_PIECES:
            break
    return Boxes(
        boxes=tuple(boxes),
        lines=tuple(lines),
        layers=deepest + 1 if vertices else 0,
        folded=folded,
    )


def _levels_of_detail(deepest: int, alike: int) -> Iterator[tuple[int, int, bool]]:
    """Yield the levels of detail at which a graph can be drawn, most detailed first.

    Each level is a tuple of three values: the number of layers that are folded into one; the number
    of nodes of one Type and layer up to which each node gets its own box; and True if all nodes in
    a box must have the same Type. The last level draws a single box.
    """
    folded = deepest // MOST_LAYERS + 1
    if folded == 1:
        yield from ((1, alike, True), (1, alike // 4, True))
    # Lines within a layer are not drawn. So in a folded layer no node of several gets its own box:
    # it would seem to have no edges.
    yield from ((folded, 1, True), (folded, 1, False))
    while folded <= deepest:
        folded *= 2
        yield from ((folded, 1, True), (folded, 1, False))


def _make_boxes(
    vertices: Iterable[Vertex], depth: dict[int, int], limit: int, *, by_type: bool
) -> tuple[list[Box], dict[int, int]]:
    """Return the boxes in the order of layers, and the number of the box for each node."""
    kinds: defaultdict[tuple[int, str], list[Vertex]] = defaultdict(list)
    for vertex in vertices:
        kinds[depth[vertex.key], vertex.type if by_type else ""].append(vertex)
    boxes: list[Box] = []
    box_of: dict[int, int] = {}
    for layer, type in sorted(kinds, key=lambda kind: kind[0]):
        alike = kinds[layer, type]
        shares = [alike] if len(alike) > limit else [[vertex] for vertex in alike]
        for members in shares:
            box_of |= dict.fromkeys((vertex.key for vertex in members), len(boxes))
            boxes.append(_make_box(layer, members))
    return boxes, box_of


def _make_box(layer: int, members: list[Vertex]) -> Box:
    types = {vertex.type for vertex in members}
    return Box(
        layer=layer,
        type=types.pop() if len(types) == 1 else "",
        vertex=members[0] if len(members) == 1 else None,
        counts=Counter(vertex.state for vertex in members),
        waiting=sum(vertex.waits > 0 for vertex in members),
    )


def _make_lines(links: Iterable[Link], box_of: dict[int, int], boxes: list[Box]) -> list[Line]:
    """Return the lines between boxes, without the edges inside a folded layer."""
    counts: Counter[tuple[int, int]] = Counter()
    strict: set[tuple[int, int]] = set()
    for upstream, downstream, always in links:
        pair = box_of.get(upstream, -1), box_of.get(downstream, -1)
        if min(pair) >= 0 and boxes[pair[0]].layer < boxes[pair[1]].layer:
            counts[pair] += 1
            if not always:
                strict.add(pair)
    return [
        Line(upstream=up, downstream=down, count=count, always=(up, down) not in strict)
        for (up, down), count in counts.items()
    ]


# The order of boxes within their layers, chosen so that few lines cross.
#
# Each box moves to the mean position of its neighbours in the adjacent layer (barycentre method,
# Sugiyama 1981): from the first layer to the last and back, twice. A line that spans several layers
# has a point in each of them, which is ordered like a box.

SWEEPS = 2


@dataclass(frozen=True, kw_only=True)
class BoxOrder:
    """The order of boxes and points in each layer of the picture, from top to bottom.

    A point is a place where a line passes through a layer. ``layers`` contains the numbers of the
    boxes and points in each layer; the numbers of points follow those of boxes. ``routes``
    contains, for each line, the numbers of its first box, its points and its last box.
    """

    layers: tuple[tuple[int, ...], ...]
    routes: tuple[tuple[int, ...], ...]


def order_boxes(found: Boxes) -> BoxOrder:
    """Order the boxes in each layer so that few lines cross."""
    rows: list[list[int]] = [[] for _ in range(max((b.layer for b in found.boxes), default=-1) + 1)]
    for number, box in enumerate(found.boxes):
        rows[box.layer].append(number)
    routes = []
    points = len(found.boxes)
    for line in found.lines:
        between = range(found.boxes[line.upstream].layer + 1, found.boxes[line.downstream].layer)
        route = [line.upstream]
        for layer in between:
            rows[layer].append(points)
            route.append(points)
            points += 1
        routes.append((*route, line.downstream))
    pieces = [pair for route in routes for pair in pairwise(route)]
    return BoxOrder(layers=_sort_layers(rows, pieces), routes=tuple(routes))


def _sort_layers(
    rows: list[list[int]], pieces: list[tuple[int, int]]
) -> tuple[tuple[int, ...], ...]:
    above, below = defaultdict(list), defaultdict(list)
    for upstream, downstream in pieces:
        below[upstream].append(downstream)
        above[downstream].append(upstream)
    best = tuple(map(tuple, rows))
    fewest = crossings(best, pieces)
    for beside, chosen in ((above, rows[1:]), (below, rows[-2::-1])) * SWEEPS:
        spots = {number: at for row in rows for at, number in enumerate(row)}
        for row in chosen:
            means = {number: _mean_spot(beside[number], spots, spots[number]) for number in row}
            row.sort(key=means.__getitem__)
            spots |= {number: at for at, number in enumerate(row)}
        count = crossings(rows, pieces)
        if count < fewest:
            best, fewest = tuple(map(tuple, rows)), count
    return best


def _mean_spot(neighbours: list[int], spots: dict[int, int], own: float) -> float:
    if not neighbours:
        return own
    return sum(spots[number] for number in neighbours) / len(neighbours)


def crossings(rows: Iterable[Sequence[int]], pieces: Iterable[tuple[int, int]]) -> int:
    """Return how many pairs of pieces of lines cross; pieces that share an end do not cross."""
    spots = {number: (layer, at) for layer, row in enumerate(rows) for at, number in enumerate(row)}
    between = defaultdict(list)
    for upstream, downstream in pieces:
        layer, begin = spots[upstream]
        between[layer].append((begin, spots[downstream][1]))
    count = 0
    for pairs in between.values():
        ends: list[int] = []
        for _, end in sorted(pairs):
            count += len(ends) - bisect_right(ends, end)
            insort(ends, end)
    return count


# The picture of a graph as numbers: the positions of boxes and the paths of lines.
#
# Layers stand side by side, the first on the left. All lengths are in pixels.

WIDTH, HEIGHT = 180, 48
# The gap between layers, the gap between boxes, the height of a point, and the margin.
BESIDE, BELOW, POINT, EDGE = 44, 12, 10, 8
# The number of letters that fit into a box, in the larger and in the smaller font.
LARGE, SMALL = 20, 27
# In this many rounds, boxes move towards their neighbours.
ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class DrawnBox:
    """A Box with its position in the picture.

    ``label`` and ``told`` are the texts in the box, shortened to fit. ``bars`` show the states of
    the nodes; each bar is a tuple of state, x position and length.
    """

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
        """The full text of the box, of which the box itself shows only a part."""
        type = f" ({self.box.type})" if self.box.vertex else ""
        return f"{self.box.label}{type}: {self.box.told}"

    @property
    def texts(self) -> dict[str, float]:
        """The positions of the texts: ``x``, and the baselines for ``name`` and ``told``."""
        lift = 3 if self.bars else 0
        return {"x": self.x + 10, "name": self.y + 21 - lift, "told": self.y + 38 - lift}

    @property
    def behind(self) -> tuple[float, float]:
        """The position of the second box, drawn behind this box to indicate several nodes."""
        return self.x + 4, self.y - 4

    @property
    def foot(self) -> float:
        """The y position of the bars."""
        return round(self.y + self.height - 6, 1)


@dataclass(frozen=True, kw_only=True)
class DrawnLine:
    """A line between two boxes; ``path`` is its SVG path."""

    line: Line
    path: str
    upstream: Box
    downstream: Box

    @property
    def title(self) -> str:
        """A text with the labels of the two boxes, and the number of edges."""
        count = f", {self.line.count:,} edges" if self.line.count > 1 else ""
        anyway = ", however that ends" if self.line.always else ""
        return f"{self.upstream.label} → {self.downstream.label}{anyway}{count}"

    @property
    def is_open(self) -> bool:
        """True if a node in the downstream box might still wait for a node in the upstream box."""
        return self.downstream.waiting > 0 and self.upstream.state != State.FINISHED


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """The picture of a graph; ``found`` contains the boxes and lines without positions."""

    found: Boxes
    boxes: tuple[DrawnBox, ...]
    lines: tuple[DrawnLine, ...]
    width: float
    height: float

    @property
    def words(self) -> str:
        """A sentence that describes the picture, for people who cannot see the picture."""
        counts: Counter[str] = Counter()
        for box in self.found.boxes:
            counts += box.counts
        states = ", ".join(f"{counts[state]:,} {state.lower()}" for state in ORDER if counts[state])
        plural = "" if self.found.layers == 1 else "s"
        return f"{counts.total():,} nodes in {self.found.layers} layer{plural}: {states}."


def draw(vertices: Collection[Vertex], links: Collection[Link]) -> Drawing:
    """Draw the picture of a graph. This takes a tenth of a second for 10,000 nodes."""
    found = group_into_boxes(vertices, links)
    order = order_boxes(found)
    centres = _place_centres(found, order)
    top = min((y - _height(found, n) / 2 for n, y in centres.items()), default=0)
    bottom = max((y + _height(found, n) / 2 for n, y in centres.items()), default=0)
    spots: dict[int, tuple[float, float]] = {}
    for layer, row in enumerate(order.layers):
        x = EDGE + layer * (WIDTH + BESIDE)
        spots |= {number: (x, round(centres[number] - top + EDGE, 1)) for number in row}
    return Drawing(
        found=found,
        boxes=tuple(_draw_box(box, *spots[number]) for number, box in enumerate(found.boxes)),
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


def _draw_box(box: Box, x: float, y: float) -> DrawnBox:
    return DrawnBox(
        box=box,
        x=x,
        y=y - HEIGHT / 2,
        label=cut_middle(box.label, LARGE),
        told=_cut_list(box.told, SMALL),
        bars=() if box.vertex is not None else _bars(box, x),
    )


def _bars(box: Box, x: float) -> tuple[tuple[str, float, float], ...]:
    """Return a bar for each state that occurs in a box, as a tuple of state, x and length.

    The lengths are proportional to the numbers of nodes, except that each bar has a minimum length.
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


def _place_centres(found: Boxes, order: BoxOrder) -> dict[int, float]:
    """Return the y position of each box's centre, near its neighbours and without overlaps."""
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
            wanted = [_mean_or([centres[other] for other in beside[n]], centres[n]) for n in row]
            distances = [offsets[number] for number in row]
            centres |= zip(row, _separate(wanted, distances), strict=True)
    return centres


def _mean_or(numbers: list[float], default: float) -> float:
    return sum(numbers) / len(numbers) if numbers else default


def _separate(wanted: list[float], offsets: list[float]) -> list[float]:
    """Return positions close to ``wanted``, in order and at least as far apart as the offsets.

    Positions that would overlap are moved together, as a group, to the mean of their wanted
    positions.
    """
    # For each group: the sum of its wanted positions less their offsets, and their number.
    runs: list[list[float]] = []
    for place, offset in zip(wanted, offsets, strict=True):
        runs.append([place - offset, 1])
        while len(runs) > 1 and runs[-2][0] / runs[-2][1] >= runs[-1][0] / runs[-1][1]:
            total, count = runs.pop()
            runs[-1][0] += total
            runs[-1][1] += count
    moved = [total / count for total, count in runs for _ in range(int(count))]
    return [begin + offset for begin, offset in zip(moved, offsets, strict=True)]


def _path(points: list[tuple[float, float]]) -> str:
    """Return the SVG path of a line that begins at the right edge of the box at the first point.

    The path ends at the left edge of the box at the last point, and is horizontal at each point.
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


# Texts are cut so that they fit into their boxes.


def cut_middle(text: str, width: int) -> str:
    """Shorten a text to ``width`` letters by a cut in the middle, and keep both ends.

    The ends distinguish similar names. A wide East Asian letter counts as two.
    """
    if _text_width(text) <= width:
        return text
    left, right = width // 2, width - width // 2 - 1
    return f"{_cut(text, left)}…{_cut(text[::-1], right)[::-1]}"


def _cut_list(text: str, width: int) -> str:
    """Shorten a comma-separated list to its first entries, which are the most important."""
    entries = text.split(", ")
    while len(entries) > 1 and _text_width(text) > width:
        entries.pop()
        text = ", ".join([*entries, "…"])
    return text


def _text_width(text: str) -> int:
    return sum(1 + (east_asian_width(letter) in "WF") for letter in text)


def _cut(text: str, width: int) -> str:
    widths = accumulate(map(_text_width, text))
    return text[: sum(each <= width for each in widths)]


# The layer of a node is the number of nodes before it on the longest path to it.


def layers(keys: Collection[int], edges: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return the layer of each key; layers count from 0, and each edge leads to a higher layer.

    Edges from or to a node that is not among the keys are ignored. The keys of a cycle, which a
    graph never has, are in layer 0.
    """
    found = dict.fromkeys(keys, 0)
    below: defaultdict[int, list[int]] = defaultdict(list)
    missing = dict.fromkeys(found, 0)
    for upstream, downstream in edges:
        if upstream in found and downstream in found:
            below[upstream].append(downstream)
            missing[downstream] += 1
    ready = [key for key, count in missing.items() if not count]
    for key in ready:  # the list grows during the loop
        layer = found[key] + 1
        for downstream in below.get(key, ()):
            found[downstream] = max(found[downstream], layer)
            missing[downstream] -= 1
            if not missing[downstream]:
                ready.append(downstream)
    if len(ready) < len(found):
        found |= {key: 0 for key, count in missing.items() if count}
    return found


# A graph as text for Mermaid.

# These characters stay unchanged in a label. Others, except letters and digits, could be markup.
_PLAIN = frozenset(" .,-_/+×…")
_COLOURS = {
    State.ACCEPTED: "#5e6878",
    State.SCHEDULED: "#7556ae",
    State.RUNNING: "#1767be",
    State.PAUSED: "#8b5e09",
    State.FINISHED: "#1a7641",
    State.FAILED: "#bb2a2a",
}


def mermaid(vertices: Collection[Vertex], links: Collection[Link]) -> str:
    """Return a flowchart with the boxes of the picture; ``-.->`` marks lines with ``always``."""
    found = group_into_boxes(vertices, links)
    lines = ["flowchart LR"]
    lines += [_mermaid_node(number, box) for number, box in enumerate(found.boxes)]
    for line in found.lines:
        arrow = "-.->" if line.always else "-->"
        count = f"|{line.count}|" if line.count > 1 else ""
        lines.append(f"  n{line.upstream} {arrow}{count} n{line.downstream}")
    for state in sorted({box.state for box in found.boxes}):
        lines.append(f"  classDef {state.lower()} stroke:{_COLOURS[State(state)]},stroke-width:2px")
    return "\n".join(lines) + "\n"


def _mermaid_node(number: int, box: Box) -> str:
    name = box.label if box.vertex is None or box.type == box.label else f"{box.label}, {box.type}"
    return f'  n{number}["{escape_label(name)}<br/>{escape_label(box.told)}"]:::{box.state.lower()}'


def escape_label(text: str) -> str:
    """Return a text as a Mermaid label, with special letters replaced by their numbers.

    Mermaid or HTML would interpret the special letters.
    """
    # Text like "#35;" would be read as a number, so "#" becomes a number too.
    return "".join(
        letter if letter.isalnum() or letter in _PLAIN else f"#{ord(letter)};"
        for letter in " ".join(text.split())
    )


# A graph as an indented list, in which each box stands below the last box that it waits for.


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A box in an indented list.

    ``depth`` is the level of indentation, and ``after`` contains the labels of the boxes that this
    box waits for.
    """

    box: Box
    depth: int
    after: tuple[str, ...]


def outline(vertices: Collection[Vertex], links: Collection[Link]) -> Iterator[Entry]:
    """Yield the boxes of a graph as an indented list, in the order of the list."""
    found = group_into_boxes(vertices, links)
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

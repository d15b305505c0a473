"""A graph as text for Mermaid."""

from __future__ import annotations

from collections.abc import Collection

from ..states import State
from .grouping import Box, grouped
from .vertex import Link, Vertex

# Beside letters and digits, what stands in a label as it is. All else could end it, or be markup.
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
    found = grouped(vertices, links)
    lines = ["flowchart LR"]
    lines += [_node(number, box) for number, box in enumerate(found.boxes)]
    for line in found.lines:
        arrow = "-.->" if line.always else "-->"
        count = f"|{line.count}|" if line.count > 1 else ""
        lines.append(f"  n{line.upstream} {arrow}{count} n{line.downstream}")
    for state in sorted({box.state for box in found.boxes}):
        lines.append(f"  classDef {state.lower()} stroke:{_COLOURS[State(state)]},stroke-width:2px")
    return "\n".join(lines) + "\n"


def _node(number: int, box: Box) -> str:
    name = box.label if box.vertex is None or box.type == box.label else f"{box.label}, {box.type}"
    return f'  n{number}["{escaped(name)}<br/>{escaped(box.told)}"]:::{box.state.lower()}'


def escaped(text: str) -> str:
    """Return text for a label; letters that Mermaid or HTML would interpret become numbers."""
    # A number, as in "#35;", would be read as one: so is the sign of numbers.
    return "".join(
        letter if letter.isalnum() or letter in _PLAIN else f"#{ord(letter)};"
        for letter in " ".join(text.split())
    )

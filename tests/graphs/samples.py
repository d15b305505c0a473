"""Sample graphs to draw."""

from random import Random

from atp.graphs.drawing import Link, Vertex
from atp.states import State

NAMES = (
    'a "quoted" name',
    "<script>alert('x')</script>",
    "&amp; #35; `x` %%",
    "日本語" * 30,
    "x" * 200,
)


def node(key, type="part", state=State.FINISHED, waits=0, name=None, reason=""):
    return Vertex(key, name or f"{type}-{key}", type, state, reason, waits)


def fan(count, type="part", state=State.FINISHED):
    """Return a graph of one node, ``count`` parallel nodes, and one node after all of them."""
    parts = [node(key, type, state) for key in range(1, count + 1)]
    last = node(count + 1, "merge", State.ACCEPTED, waits=1)
    out = [Link(0, part.key) for part in parts]
    into = [Link(part.key, last.key) for part in parts]
    return [node(0, "fetch"), *parts, last], out + into


def mixed(count, seed, types=6, edges=2):
    """Return random nodes of several Types and states, with edges from earlier nodes."""
    random = Random(seed)
    nodes = [
        node(
            key,
            f"type-{random.randrange(types)}",
            random.choice([*State]),
            name=NAMES[key] if key < len(NAMES) else None,
        )
        for key in range(count)
    ]
    pairs = {
        (random.randrange(key), key, random.random() < 0.2)
        for key in range(count // 4 + 1, count)
        for _ in range(random.randrange(edges + 1))
    }
    return nodes, [Link(*pair) for pair in sorted(pairs)]

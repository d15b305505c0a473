"""The shapes of graphs under fire: random, but the same for the same seed and number."""

from dataclasses import dataclass

from atp import Graph, result
from atp.verbs.registry import registry

TYPE = "chaos.node"
NODES = 50
# How a node ends, and how often beside each other.
HOWS = {"returns": 88, "works": 5, "retries": 4, "fails": 3}
# The number of nodes that one waits for, and how often beside each other.
UPSTREAMS = {0: 10, 1: 50, 2: 25, 3: 15}
# Of those that wait, this share runs however the others end.
RUNS_ANYHOW = 0.2
# Some wait for many at once.
FANS_IN, FAN_IN = 0.03, 20


@dataclass(frozen=True)
class Shape:
    """One node: its number is its name. It comes ``after`` others, by their numbers."""

    number: int
    how: str
    after: tuple[int, ...]
    runs_anyhow: bool

    @property
    def name(self):
        return f"node-{self.number}"


def drawn(source):
    """Return the shapes of one graph, each after the ones that it waits for."""
    return [_node(number, source) for number in range(NODES)]


def _node(number, source):
    count = source.choices([*UPSTREAMS], [*UPSTREAMS.values()])[0]
    if source.random() < FANS_IN:
        count = FAN_IN
    # Rather the last ones, so that there are long ways.
    ahead = range(max(0, number - 12), number) if count < FAN_IN else range(number)
    after = tuple(sorted(source.sample(ahead, min(count, len(ahead)))))
    how = source.choices([*HOWS], [*HOWS.values()])[0]
    return Shape(number, how, after, bool(after) and source.random() < RUNS_ANYHOW)


def submit(name, shapes, path):
    """Submit a graph of these shapes, in one transaction."""
    type = registry.get(TYPE)
    with Graph(name, by="chaos") as graph:
        nodes = {}
        for shape in shapes:
            after = [nodes[number] for number in shape.after]
            # Who runs anyhow may find no result.
            parts = [] if shape.runs_anyhow else [result(node)["value"] for node in after]
            nodes[shape.number] = graph.add(
                type,
                path=str(path),
                how=shape.how,
                parts=parts,
                after=after,
                on_failure="run" if shape.runs_anyhow else "stop",
                name=shape.name,
            )
    return graph

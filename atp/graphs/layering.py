"""Layers: the number of nodes before a node, on the longest path to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable


def layers(keys: Collection[int], edges: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return the layer of each key, from 0; each edge leads to a higher layer.

    Edges from or to a node that is not among the keys are ignored. The keys of a cycle, which no
    graph has, are in layer 0.
    """
    found = dict.fromkeys(keys, 0)
    below: defaultdict[int, list[int]] = defaultdict(list)
    missing = dict.fromkeys(found, 0)
    for upstream, downstream in edges:
        if upstream in found and downstream in found:
            below[upstream].append(downstream)
            missing[downstream] += 1
    ready = [key for key, count in missing.items() if not count]
    for key in ready:  # which grows while it is walked through
        layer = found[key] + 1
        for downstream in below.get(key, ()):
            found[downstream] = max(found[downstream], layer)
            missing[downstream] -= 1
            if not missing[downstream]:
                ready.append(downstream)
    if len(ready) < len(found):
        found |= {key: 0 for key, count in missing.items() if count}
    return found

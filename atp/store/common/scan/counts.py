"""Nodes of graphs that wait for the wrong number of edges (G17)."""

from ....models import Task
from ...facts import Finding, Trouble
from .look import MOST


def miscounted(look, low, high):
    """Return findings for miscounted nodes with ``low < key <= high``; recounts them if allowed."""
    graphs = look.store.graphs
    tasks = look.rows(Task).filter(pk__gt=low, pk__lte=high)
    if not tasks.filter(waits__gt=0).exists():
        return []
    keys = sorted(graphs.miscounted(tasks))[:MOST]
    if not keys:
        return []
    named = look.named(keys)
    done = graphs.recount(keys, look.now, look.who) if look.repair else {}
    return [
        Finding(
            trouble=Trouble.MISCOUNTED,
            instance=named[key][0],
            type=named[key][1],
            done=done.get(key, ""),
        )
        for key in keys
        if key in done or not look.repair
    ]

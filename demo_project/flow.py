"""Computes where water flows, by filled depressions, D8 flow directions and flow accumulation.

Filling and accumulating are written in plain Python, one cell at a time. NumPy has no such loops,
and the demo needs work that takes a while and can report its progress.
"""

import heapq

import numpy as np

# A filled cell is this many metres higher than the cell it drains to, so that water flows across a
# filled lake.
STEP = 1e-4
# The number of cells between two calls of a tick function.
TICK_EVERY = 5000

_NEIGHBOURS = ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1))


def _no_tick(fraction):
    """Ignore the progress, for callers that do not want to know it."""


def fill_depressions(elevation, tick=_no_tick):
    """Return the elevations, with every depression raised until it drains to an edge.

    The algorithm is priority-flood (Barnes, Lehman and Mulla 2014). It floods the land from the
    edges inwards, always continuing from the lowest flooded cell. ``tick`` is called from time to
    time with the fraction of the work that is done.
    """
    rows, columns = elevation.shape
    width = columns + 2
    # A frame of cells around the grid counts as flooded, so no cell needs a test for the edge.
    level = np.pad(elevation.astype(float), 1).ravel().tolist()
    reached = np.pad(np.zeros((rows, columns), bool), 1, constant_values=True).ravel().tolist()
    front = []
    for row in range(1, rows + 1):
        whole = row in (1, rows)
        for column in range(1, columns + 1) if whole else {1, columns}:
            cell = row * width + column
            reached[cell] = True
            front.append((level[cell], cell))
    heapq.heapify(front)
    steps = [r * width + c for r, c in _NEIGHBOURS]
    done, total = 0, rows * columns
    while front:
        height, cell = heapq.heappop(front)
        for step in steps:
            other = cell + step
            if reached[other]:
                continue
            reached[other] = True
            if level[other] <= height:
                level[other] = height + STEP
            heapq.heappush(front, (level[other], other))
        done += 1
        if done % TICK_EVERY == 0:
            tick(done / total)
    return np.array(level).reshape(rows + 2, width)[1:-1, 1:-1]


def receivers(filled, dx, dy):
    """Return for each cell the flat index of the neighbour to which its water flows.

    Water flows to the one of eight neighbours with the steepest descent (O'Callaghan and Mark
    1984). The index is -1 where water leaves the grid.
    """
    rows, columns = filled.shape
    steepest = np.zeros(filled.shape)
    receiver = np.full(filled.shape, -1)
    index = np.arange(filled.size).reshape(filled.shape)
    framed = np.pad(filled, 1, constant_values=np.inf)
    for row, column in _NEIGHBOURS:
        other = framed[1 + row : 1 + row + rows, 1 + column : 1 + column + columns]
        descent = (filled - other) / np.hypot(row * dy, column * dx)
        better = descent > steepest
        steepest[better] = descent[better]
        receiver[better] = (index + row * columns + column)[better]
    return receiver


def accumulate(filled, receiver, tick=_no_tick):
    """Return for each cell how many cells drain through it, including the cell itself."""
    flat = receiver.ravel().tolist()
    amount = [1] * len(flat)
    # From the highest cell down, so that a cell has received all its water before it passes it on.
    order = np.argsort(-filled, axis=None, kind="stable").tolist()
    for done, cell in enumerate(order, start=1):
        target = flat[cell]
        if target >= 0:
            amount[target] += amount[cell]
        if done % TICK_EVERY == 0:
            tick(done / len(order))
    return np.array(amount).reshape(filled.shape)

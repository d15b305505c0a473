"""Statistic beside the log: what was counted while it happened, and what a recount says."""

from .verdict import Breach


def numbers():
    """Return what was counted, and what the log says: numbers by Type and column."""
    from atp.reports import statistics
    from atp.store import get_store

    while get_store().statistics.pay():
        """Nobody is there any more to count what killed daemons have left."""
    return [
        {
            type: {name: number for name, number in cell.counts.items() if number}
            | {f"run[{place}]": number for place, number in enumerate(cell.run) if number}
            for type, cell in found.items()
        }
        for found in (statistics.sums(), statistics.recounted())
    ]


def miscounted(evidence):
    """Statistic says of each Type what the log says."""
    for type in sorted(evidence.counted.keys() | evidence.recounted.keys()):
        counted, told = (each.get(type, {}) for each in (evidence.counted, evidence.recounted))
        for name in sorted(counted.keys() | told.keys()):
            if counted.get(name, 0) != told.get(name, 0):
                numbers = f"{counted.get(name, 0)} counted, {told.get(name, 0)} in the log"
                yield Breach(f"{type} {name}: {numbers}")

"""The claim order of :mod:`atp.querysets`, as SQL and as a sort of rows in memory."""

from operator import itemgetter


def in_sql(order, table=""):
    """Return the columns for ORDER BY; ``table`` is a prefix such as ``"task."``."""
    return ", ".join(
        f"{table}{name.removeprefix('-')}" + " DESC" * name.startswith("-") for name in order
    )


class RowOrder:
    """Sorts rows (tuples) by an order; ``columns`` gives the index of each name of the order."""

    def __init__(self, order, columns):
        # Sorting is stable, so the least important column comes first. These passes are quicker
        # than one pass with a key function in Python.
        self._passes = [
            (itemgetter(columns[name.removeprefix("-")]), name.startswith("-"))
            for name in reversed(order)
        ]

    def sort(self, rows):
        for key, is_descending in self._passes:
            rows.sort(key=key, reverse=is_descending)

"""The claim order of :mod:`atp.rows.querysets`, in the words of SQL and for rows in memory."""

from operator import itemgetter


def in_sql(order, table=""):
    """Return what stands behind ORDER BY; ``table`` is the name of the table, with a dot."""
    return ", ".join(
        f"{table}{name.removeprefix('-')}" + " DESC" * name.startswith("-") for name in order
    )


class RowOrder:
    """Sorts rows, which are tuples; ``columns`` says where each name of the order stands."""

    def __init__(self, order, columns):
        # Sorting is stable, so the least important name comes first. That is quicker than
        # one pass with a key made in Python.
        self._passes = [
            (itemgetter(columns[name.removeprefix("-")]), name.startswith("-"))
            for name in reversed(order)
        ]

    def sort(self, rows):
        for key, is_descending in self._passes:
            rows.sort(key=key, reverse=is_descending)

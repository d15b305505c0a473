"""Documents as text for people, or as JSON for programs.

What the database holds may contain anything, also what moves a terminal's
cursor or changes its title. Text goes out with such characters escaped (G14).
"""

import json

from ..reports import documents

INDENT = "  "


def as_json(document):
    """Return the document as JSON: times in ISO 8601, durations in seconds, ASCII only."""
    return json.dumps(document, default=documents.plain, indent=2)


def printable(text):
    """Return one line of text with everything escaped that is not to be seen."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in str(text)
    )


def lines(text):
    """Return text as printable lines."""
    return [printable(line.expandtabs()) for line in str(text).splitlines()]


def table(headings, rows):
    """Return rows under their headings, aligned; numbers to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    numbers = [
        bool(rows) and all(isinstance(row[column], int) for row in rows)
        for column in range(len(headings))
    ]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    return "\n".join(
        INDENT.join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, numbers, strict=True)
        ).rstrip()
        for row in [headings, *cells]
    )


def pairs(items):
    """Return names and values, aligned, leaving out values that are None or empty."""
    given = [(name, printable(value)) for name, value in items if value not in (None, "")]
    width = max((len(name) for name, _ in given), default=0)
    return "\n".join(f"{name.ljust(width)}{INDENT}{value}" for name, value in given)


def _cell(value):
    return "" if value is None else printable(value)

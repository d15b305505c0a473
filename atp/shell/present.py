"""Documents as text for people, or as JSON for programs.

Stored text may contain control characters that move a terminal's cursor or change its
title. Such characters are escaped in the output (G14).
"""

import json

from ..reports import documents

INDENT = "  "


def as_json(document):
    """Return the document as JSON: times in ISO 8601, durations in seconds, ASCII only."""
    text = json.dumps(document, default=documents.plain, indent=2)
    return text.replace("\x7f", "\\u007f")


def printable(text):
    """Return one line of text, with all characters escaped that are not printable."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in str(text)
    )


def page(text):
    """Return an outcome of several lines, with all characters escaped that are not printable.

    What is stored has been escaped before, with its line ends, where that was thought of.
    """
    return "\n".join(map(printable, str(text).split("\n")))


def lines(text):
    """Return the lines of a text, each made printable."""
    return [printable(line.expandtabs()) for line in str(text).splitlines()]


def table(headings, rows):
    """Return a table as text: headings, then rows in aligned columns, numbers to the right."""
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
    """Return names and values in two columns, without values that are None or empty."""
    given = [(name, printable(value)) for name, value in items if value not in (None, "")]
    width = max((len(name) for name, _ in given), default=0)
    return "\n".join(f"{name.ljust(width)}{INDENT}{value}" for name, value in given)


def _cell(value):
    return "" if value is None else printable(value)

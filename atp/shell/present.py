"""Format documents as text for people, or as JSON for programs.

Stored text may contain control characters that move a terminal's cursor or change its title. The
output contains such characters only in escaped form (guarantee G14).
"""

import json
from collections.abc import Iterable, Sequence

from ..reports import documents

INDENT = "  "


def as_json(document: documents.Document) -> str:
    """Return the document as JSON: times in ISO 8601, durations in seconds, ASCII only."""
    text = json.dumps(document, default=documents.plain_value, indent=2)
    return text.replace("\x7f", "\\u007f")


def printable(text: object) -> str:
    """Return ``text`` as one line, with all unprintable characters escaped."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in str(text)
    )


def printable_text(text: object) -> str:
    """Return text of several lines, with all unprintable characters escaped except line ends.

    Code that shows stored text must first escape that text with :func:`printable`, which also
    escapes its line ends.
    """
    return "\n".join(map(printable, str(text).split("\n")))


def printable_lines(text: object) -> list[str]:
    """Split a text into lines, and escape the unprintable characters in each line."""
    return [printable(line.expandtabs()) for line in str(text).splitlines()]


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table as text with aligned columns. Whole numbers are aligned on the right."""
    cells = [[_format_cell(value) for value in row] for row in rows]
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


def pairs(items: Iterable[tuple[str, object]]) -> str:
    """Return two columns of text, names and values, without values that are None or empty."""
    rows = [(name, printable(value)) for name, value in items if value not in (None, "")]
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{name.ljust(width)}{INDENT}{value}" for name, value in rows)


def _format_cell(value: object) -> str:
    return "" if value is None else printable(value)

"""Stored values as text for the admin's pages, always escaped, so never as HTML (G14)."""

import json
import logging

from django.contrib import admin
from django.utils import timezone
from django.utils.html import format_html, format_html_join

from ..payload import codec
from ..reports import documents
from ..words import wording

# The most characters of inputs, a response or a message on a page.
SHOWN = 4000


def time_of(name, description=None):
    """Return a column with the time of a field, to the second, in the current time zone."""

    @admin.display(description=description or name.replace("_", " "))
    def column(row):
        value = getattr(row, name)
        return None if value is None else f"{timezone.localtime(value):%Y-%m-%d %H:%M:%S}"

    column.__name__ = name
    return column


def short(text, limit):
    return text if len(text) <= limit else f"{text[:limit]}…"


def preformatted(text):
    return format_html('<pre style="white-space: pre-wrap">{}</pre>', short(text, SHOWN))


def inputs(row):
    """Return the inputs in a row as text, with masks for what is sensitive."""
    if row is None:
        return None
    return result(row, documents.shown_data(row) if row.format == codec.JSON else None)


def result(row, data=None):
    """Return a stored value as text."""
    if row.format != codec.JSON:
        return f"a signed {row.format}, not opened here"
    return preformatted(wording.indented(row.data if data is None else data))


def plain(value):
    """Return a JSON value as text."""
    return preformatted(wording.indented(json.dumps(value, ensure_ascii=False)))


def output(row):
    """Return the type and size of a response, with the beginning of its text if it is text."""
    if row is None or not row.content_type:
        return None
    kind = row.content_type.partition(";")[0].strip().lower()
    told = f"{row.content_type}, {row.size} bytes" + (f", in {row.file}" if row.file else "")
    is_text = kind == "application/json" or kind.startswith("text/")
    if not is_text or row.data is None:
        return told
    text = bytes(row.data).decode(errors="replace")
    shown = preformatted(wording.indented(text) if kind == "application/json" else text)
    return format_html("{}{}", told, shown)


def files(row):
    if row is None or not row.files:
        return None
    return items(f"{f['path']} ({f['content_type']}, {f['size']} bytes)" for f in row.files)


def items(lines):
    """Return lines as an HTML list; None if there are none."""
    listed = format_html_join("", "<li>{}</li>", ((line,) for line in lines))
    return format_html("<ul>{}</ul>", listed) if listed else None


_LOG_ROW = "<tr>" + "<td>{}</td>" * 5 + '<td style="white-space: pre-wrap">{}</td></tr>'


def log(records):
    rows = (
        (
            f"{timezone.localtime(record.time):%Y-%m-%d %H:%M:%S.%f}"[:-3],
            f"{record.event} → {record.state}" if record.event else "",
            "" if record.attempt is None else record.attempt,
            logging.getLevelName(record.level),
            record.who,
            short(record.message, SHOWN),
        )
        for record in records
    )
    return format_html("<table>{}</table>", format_html_join("", _LOG_ROW, rows))

"""Formatting the lines that workers have printed for the daemon's log."""

import os
from datetime import UTC, datetime

from ... import text
from ..journal import Style, json_line


def marked(data, *, worker, instance):
    """Return the log lines, as bytes, for the whole lines ``data`` that a worker has printed.

    Each line names its worker, so that nobody takes it for one of the daemon's own. Control
    characters are escaped. ``instance`` is the uuid of the Instance that the worker runs, or
    None.
    """
    lines = data.decode("utf-8", "backslashreplace").removesuffix("\n").split("\n")
    source = {"worker": worker, "instance": instance and str(instance)}
    tell = _printed_json if Style.is_json else _printed_text
    return "".join(tell(line.rstrip("\r"), source) for line in lines).encode()


def _printed_json(line, source):
    said = {"fact": "printed", "message": line, **source}
    facts = {"time": datetime.now(UTC).isoformat(), "level": "INFO", "pid": os.getpid(), **said}
    return json_line(facts) + "\n"


def _printed_text(line, source):
    name = f"worker {source['worker']} {source['instance'] or ''}".rstrip()
    return f"{name}: {text.one_line(line)}\n"

"""The errors of a result: an Instance's failures, from its log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .. import exceptions
from ..rows.log import MAX_DETAIL
from ..states import Event, Reason
from .frameworks import TaskError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..models import Instance, LogRecord

# The ends that are no exception's of the handler.
CLASSES = {
    Reason.STALE: exceptions.Stale,
    Reason.CANCELLED: exceptions.Cancelled,
    Reason.DROPPED: exceptions.Dropped,
    Reason.MISSED: exceptions.Missed,
    Reason.UPSTREAM: exceptions.Upstream,
}
# Of an attempt that was recorded before the log named classes.
_UNKNOWN = "builtins.Exception"

EVENTS = (Event.RETRY, Event.FAIL)


def errors_of(instance: Instance, records: Iterable[LogRecord]) -> list[Any]:
    """Return a TaskError for each attempt that raised, and one for another reason of its end.

    ``records`` are its RETRY and FAIL records, in order.
    """
    records = list(records)
    found = raised(records)
    if not instance.reason or not records:
        return found
    last = records[-1]
    other = CLASSES.get(Reason(instance.reason))
    if other is not None:
        found.append(error_of(f"{exceptions.__name__}.{other.__name__}", last.message))
    elif not last.detail:
        found.append(error_of(_UNKNOWN, last.message))
    return found


def raised(records: Iterable[LogRecord]) -> list[Any]:
    """Return a TaskError for each attempt that raised."""
    return [
        error_of(_path(record), record.message)
        for record in records
        if record.detail or record.event == Event.RETRY
    ]


def error_of(path: str, message: str) -> Any:
    """Return a TaskError; what was logged ends like a traceback of Python's, with a new line."""
    return TaskError(exception_class_path=path, traceback=f"{message}\n")


def _path(record: LogRecord) -> str:
    """Return the path of the exception's class: the log has its first characters as data.

    The rest of a longer one is in the traceback, at the beginning of the line that names it.
    """
    if len(record.detail) < MAX_DETAIL:
        return record.detail or _UNKNOWN
    lines = re.findall(rf"^{re.escape(record.detail)}[\w.]*", record.message, re.MULTILINE)
    return lines[-1] if lines else record.detail

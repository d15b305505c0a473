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

# The classes that stand for ends which no exception of the handler caused.
CLASSES = {
    Reason.STALE: exceptions.Stale,
    Reason.CANCELLED: exceptions.Cancelled,
    Reason.DROPPED: exceptions.Dropped,
    Reason.MISSED: exceptions.Missed,
    Reason.UPSTREAM: exceptions.Upstream,
}
# The class for an attempt that was recorded before the log named classes.
_UNKNOWN = "builtins.Exception"

EVENTS = (Event.RETRY, Event.FAIL)


def errors_of(instance: Instance, records: Iterable[LogRecord]) -> list[Any]:
    """Return a TaskError for each attempt that raised, and one if it FAILED for another reason.

    ``records`` are the RETRY and FAIL records of the Instance, in order.
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
    """Return a TaskError; its traceback ends with a newline, as Python's tracebacks do."""
    return TaskError(exception_class_path=path, traceback=f"{message}\n")


def _path(record: LogRecord) -> str:
    """Return the dotted path of the exception's class.

    ``detail`` has only the first characters of the path. The whole of a longer path is in the
    traceback, at the beginning of the line that names the exception.
    """
    if len(record.detail) < MAX_DETAIL:
        return record.detail or _UNKNOWN
    lines = re.findall(rf"^{re.escape(record.detail)}[\w.]*", record.message, re.MULTILINE)
    return lines[-1] if lines else record.detail

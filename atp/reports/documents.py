"""Rows as documents: plain values by name, as the API and the shell's ``--json`` show them."""

from __future__ import annotations

import json
import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ..conf import settings
from ..models import (
    Daemon,
    Gate,
    Inputs,
    Instance,
    Limit,
    LogRecord,
    Response,
    Schedule,
    Task,
    Type,
    Undo,
)
from ..payload import codec, sensitive
from ..states import State
from ..verbs.registry import registry
from ..verbs.types import sensitive_names
from . import hooks, overview
from .blocked import due

if TYPE_CHECKING:
    from ..authoring.task_type import TaskType

Document = dict[str, Any]

INSTANCE_FIELDS = (
    "uuid",
    "type",
    "identifier",
    "unique",
    "state",
    "reason",
    "collection",
    "priority",
    "attempt",
    "restarts",
    "retries",
    "lost",
    "progress",
    "progress_message",
    "start_before",
    "timeout",
    "max_retries",
    "created_by",
    "created",
    "started",
    "finished",
)
TYPE_FIELDS = (
    "identifier",
    "handler",
    "timeout",
    "max_restarts",
    "max_retries",
    "backoff",
    "backoff_max",
    "retention",
    "max_memory",
    "serializer",
    "downstream",
    "owner",
    "runbook",
)
TASK_FIELDS = ("collection", "priority", "due_at", "start_before", "attempt", "request")
LOG_FIELDS = ("time", "kind", "detail", "event", "state", "attempt", "level", "who", "message")
DAEMON_FIELDS = (
    "uuid",
    "host",
    "pid",
    "version",
    "release",
    "types",
    "signatures",
    "workers",
    "lock",
    "lease_until",
    "idle",
    "mode",
    "request",
    "started",
    "seen",
)
GATE_FIELDS = ("collection", "mode", "reason", "who", "since", "until")
LIMIT_FIELDS = (
    *("collection", "max_running", "max_running_per_collection", "rate", "burst", "weight"),
    *("max_waiting", "max_wait"),
    *("is_set", "who", "since"),
)
FILE_FIELDS = {"name": str, "path": str, "content_type": str, "size": int, "attempt": int}
WORKER_FIELDS = ("worker", "pid", "type", "instance", "since", "paused")


def plain(value: object) -> str | float:
    """Return a JSON value for a type that JSON lacks: ``json.dumps(document, default=plain)``.

    Times are in ISO 8601 with an offset, durations in seconds.
    """
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{value!r} has no place in a document")


def types() -> list[Document]:
    """Return all Types, registered or only declared by this process, sorted by identifier."""
    rows = list(Type.objects.using(settings.DATABASE))
    missing = {task_type.identifier for task_type in registry} - {row.identifier for row in rows}
    found = [
        *(type(row) for row in rows),
        *(unregistered_type(registry.get(name)) for name in missing),
    ]
    return sorted(found, key=lambda document: document["identifier"])


def type(row: Type) -> Document:
    """Return a registered Type; ``declared`` tells whether this process has its handler."""
    document = {name: getattr(row, name) for name in TYPE_FIELDS} | hooks.words(row.hooks)
    return document | {
        "sensitive": row.sensitive or [],
        "late_writes": row.late_writes,
        "registered": row.registered,
        "declared": row.identifier in registry,
    }


def unregistered_type(task_type: TaskType) -> Document:
    """Return a Type that this process declares and that is not in the database yet."""
    parameters = task_type.registration()
    document = {name: getattr(parameters, name) for name in TYPE_FIELDS}
    document |= hooks.words(parameters.hooks)
    document["sensitive"] = parameters.sensitive or []
    return document | {"late_writes": 0, "registered": None, "declared": True}


def gate(row: Gate) -> Document:
    """Return a shut gate; ``type`` is None for the gate over everything."""
    document = {name: getattr(row, name) for name in GATE_FIELDS}
    return {"type": None if row.type is None else row.type.identifier} | document


def limit(row: Limit) -> Document:
    """Return the limits of a Type, or of a lane of it."""
    document = {name: getattr(row, name) for name in LIMIT_FIELDS}
    return {"type": row.type.identifier} | document


def instance(row: Instance) -> Document:
    document = {name: getattr(row, name) for name in INSTANCE_FIELDS}
    return document | {"type": row.type.identifier}


def task(row: Task | None) -> Document | None:
    """Return the queue row of a live Instance; None if it has none."""
    if row is None:
        return None
    return {
        "due_at": due(row),
        "daemon": None if row.daemon is None else str(row.daemon),
        "request": row.request,
    }


def asked(state: str, request: str) -> str:
    """Return the request to the holder of an Instance, or "" if it has been carried out."""
    done = {"pause": State.PAUSED, "resume": State.RUNNING}
    return "" if done.get(request) == state else request


def queued_task(row: Task) -> Document:
    """Return a Task as an entry of the queue, with its Instance and Type."""
    document = {name: getattr(row, name) for name in TASK_FIELDS}
    return document | {
        "due_at": due(row),
        "instance": row.instance.uuid,
        "type": row.type.identifier,
        "daemon": None if row.daemon is None else str(row.daemon),
    }


def inputs(row: Inputs | None) -> Document | None:
    """Return the stored arguments and the carried values. A pickle is never opened here."""
    if row is None:
        return None
    value = stored(shown_data(row)) if row.format == codec.JSON else None
    return {"format": row.format, "value": value, "carried": row.carried}


def shown_data(row: Inputs | Schedule | Undo) -> str:
    """Return the JSON of the inputs in a row, with masks for what is sensitive."""
    type = row.instance.type if isinstance(row, Inputs) else row.type
    return sensitive.masked_json(row.data, sensitive_names(type))


def response(row: Response | None) -> Document | None:
    """Return the facts about the output; ``value`` is set if it is JSON and not in a file."""
    if row is None:
        return None
    document = {name: getattr(row, name) for name in ("content_type", "size", "file")}
    document["files"] = files(row)
    is_json = row.content_type == "application/json" and row.data is not None
    value = stored(bytes(row.data)) if is_json else None  # type: ignore[arg-type]
    return document | {"value": value}


def files(row: Response) -> list[Document]:
    """Return the valid entries among the published files of a Response."""
    listed = row.files if isinstance(row.files, list) else []
    return [entry for entry in listed if _is_file(entry)]


def _is_file(entry: object) -> bool:
    return isinstance(entry, dict) and all(
        isinstance(entry.get(name), kind) for name, kind in FILE_FIELDS.items()
    )


def stored(text: str | bytes) -> Any:  # None for what is no JSON
    try:
        return json.loads(text, parse_float=_number, parse_constant=_number)
    except (ValueError, RecursionError):
        return None


def _number(text: str) -> float:
    """Return a finite number. Raises ValueError for NaN and infinite numbers, which JSON lacks."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no JSON value")
    return number


def log_record(row: LogRecord) -> Document:
    return {name: getattr(row, name) for name in LOG_FIELDS}


def daemon(row: Daemon, now: datetime) -> Document:
    document = {name: getattr(row, name) for name in DAEMON_FIELDS}
    # Another version of the daemon may have written these columns in another form.
    listed = row.workers if isinstance(row.workers, list) else []
    workers = [worker for worker in listed if isinstance(worker, dict)]
    types = row.types if isinstance(row.types, list) else []
    signatures = row.signatures if isinstance(row.signatures, dict) else {}
    return document | {
        "signatures": {name: text for name, text in signatures.items() if isinstance(text, str)},
        "condition": overview.condition(row, now),
        "types": [each for each in types if isinstance(each, str) and each.isprintable()],
        "workers": [_worker(worker) for worker in workers],
    }


def _worker(worker: Document) -> Document:
    document = {name: worker.get(name) for name in WORKER_FIELDS}
    return document | {"paused": worker.get("paused") is True}

"""Rows as documents, plain values by name: what the shell's ``--json`` and the API give of them."""

import json
import math
from datetime import datetime, timedelta
from uuid import UUID

from . import codec, overview
from .conf import settings
from .models import Type
from .registry import registry
from .states import Reason, State

INSTANCE_FIELDS = (
    "uuid",
    "type",
    "identifier",
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
)
TASK_FIELDS = ("collection", "priority", "due_at", "start_before", "attempt", "request")
LOG_FIELDS = ("time", "event", "state", "attempt", "level", "who", "message")
DAEMON_FIELDS = (
    "uuid",
    "host",
    "pid",
    "version",
    "types",
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
    "collection",
    "max_running",
    "rate",
    "burst",
    "weight",
    "is_set",
    "who",
    "since",
)
FILE_FIELDS = {"name": str, "path": str, "content_type": str, "size": int, "attempt": int}
WORKER_FIELDS = ("worker", "pid", "type", "instance", "since", "paused")


def plain(value):
    """Return what JSON has for a value that it lacks: ``json.dumps(document, default=plain)``.

    Times are in ISO 8601 with an offset, durations in seconds.
    """
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{value!r} has no place in a document")


def types():
    """All Types, registered or only declared by this process, by identifier."""
    rows = list(Type.objects.using(settings.DATABASE))
    missing = {task_type.identifier for task_type in registry} - {row.identifier for row in rows}
    found = [
        *(type(row) for row in rows),
        *(unregistered_type(registry.get(name)) for name in missing),
    ]
    return sorted(found, key=lambda document: document["identifier"])


def type(row):
    """A registered Type; ``declared`` says whether this process has its handler."""
    document = {name: getattr(row, name) for name in TYPE_FIELDS}
    return document | {
        "late_writes": row.late_writes,
        "registered": row.registered,
        "declared": row.identifier in registry,
    }


def unregistered_type(task_type):
    """A Type that this process declares and that is not in the database yet."""
    parameters = task_type.registration()
    document = {name: getattr(parameters, name) for name in TYPE_FIELDS}
    return document | {"late_writes": 0, "registered": None, "declared": True}


def gate(row):
    """A gate that is shut; without a Type it is that over everything."""
    document = {name: getattr(row, name) for name in GATE_FIELDS}
    return {"type": None if row.type is None else row.type.identifier} | document


def limit(row):
    """What is limited of a Type, or of a lane of it."""
    document = {name: getattr(row, name) for name in LIMIT_FIELDS}
    return {"type": row.type.identifier} | document


def instance(row):
    document = {name: getattr(row, name) for name in INSTANCE_FIELDS}
    return document | {"type": row.type.identifier}


def task(row):
    """The queue row of a live Instance; None if it has none."""
    if row is None:
        return None
    return {
        "due_at": row.due_at,
        "daemon": None if row.daemon is None else str(row.daemon),
        "request": row.request,
    }


def asked(state, request):
    """What the holder of an Instance in this state has been asked and has not done yet."""
    done = {"pause": State.PAUSED, "resume": State.RUNNING}
    return "" if done.get(request) == state else request


def queued_task(row):
    """A Task as the queue lists it: with what it is a Task of."""
    document = {name: getattr(row, name) for name in TASK_FIELDS}
    return document | {
        "instance": row.instance.uuid,
        "type": row.type.identifier,
        "daemon": None if row.daemon is None else str(row.daemon),
    }


def inputs(row):
    """The arguments as they are stored. A pickle is never opened to be looked at."""
    if row is None:
        return None
    return {"format": row.format, "value": _stored(row.data) if row.format == codec.JSON else None}


def response(row):
    """What is known of the output; ``value`` is there where it is JSON and not in a file."""
    if row is None:
        return None
    document = {name: getattr(row, name) for name in ("content_type", "size", "file")}
    document["files"] = files(row)
    is_json = row.content_type == "application/json" and row.data is not None
    return document | {"value": _stored(bytes(row.data)) if is_json else None}


def files(row):
    """What a Response says of published files, as far as it is what a daemon writes."""
    listed = row.files if isinstance(row.files, list) else []
    return [entry for entry in listed if _is_file(entry)]


def _is_file(entry):
    return isinstance(entry, dict) and all(
        isinstance(entry.get(name), kind) for name, kind in FILE_FIELDS.items()
    )


# FAILED for these reasons it never ran, or no longer did.
_NOT_RUNNING = frozenset({Reason.MISSED, Reason.DROPPED, Reason.UPSTREAM})


def took(instance, now):
    """How long the last attempt of an Instance document took, or has so far; None if unknown."""
    started = instance["started"]
    waits = instance["state"] in (State.ACCEPTED, State.SCHEDULED)
    if started is None or waits or instance["reason"] in _NOT_RUNNING:
        return None
    return max((instance["finished"] or now) - started, timedelta())


def _stored(text):
    try:
        return json.loads(text, parse_float=_number, parse_constant=_number)
    except (ValueError, RecursionError):
        return None


def _number(text):
    """A number that JSON has: neither NaN nor one that Python takes for infinite."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no JSON value")
    return number


def log_record(row):
    return {name: getattr(row, name) for name in LOG_FIELDS}


def daemon(row, now):
    document = {name: getattr(row, name) for name in DAEMON_FIELDS}
    # What another version of the daemon may have written differently.
    listed = row.workers if isinstance(row.workers, list) else []
    workers = [worker for worker in listed if isinstance(worker, dict)]
    types = row.types if isinstance(row.types, list) else []
    return document | {
        "condition": overview.condition(row, now),
        "types": [each for each in types if isinstance(each, str) and each.isprintable()],
        "workers": [_worker(worker) for worker in workers],
    }


def _worker(worker):
    document = {name: worker.get(name) for name in WORKER_FIELDS}
    return document | {"paused": worker.get("paused") is True}

"""Rows as documents: what ``--json`` prints of them. The keys are documented in docs/shell.md."""

import json

from ... import codec, overview

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
    "request",
    "started",
    "seen",
)
WORKER_FIELDS = ("worker", "pid", "type", "instance", "since")


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


def inputs(row):
    """The arguments as they are stored. A pickle is never opened to be looked at."""
    if row is None:
        return None
    return {"format": row.format, "value": _stored(row.data) if row.format == codec.JSON else None}


def response(row):
    """What is known of the output; ``value`` is there where it is JSON and not in a file."""
    if row is None:
        return None
    document = {name: getattr(row, name) for name in ("content_type", "size", "file", "files")}
    is_json = row.content_type == "application/json" and row.data is not None
    return document | {"value": _stored(bytes(row.data)) if is_json else None}


def _stored(text):
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def log_record(row):
    return {name: getattr(row, name) for name in LOG_FIELDS}


def daemon(row, now):
    document = {name: getattr(row, name) for name in DAEMON_FIELDS}
    workers = [{name: worker.get(name) for name in WORKER_FIELDS} for worker in row.workers]
    return document | {"condition": overview.condition(row, now), "workers": workers}

"""Convert database rows to the dicts of plain values that the API and ``--json`` return."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db.models import OuterRef, QuerySet, Subquery
from django.db.models.functions import Left

from .. import text
from ..commands import split_request
from ..conf import settings
from ..models import (
    BLOCKED,
    Daemon,
    Gate,
    Inputs,
    Instance,
    Kind,
    Limit,
    LogRecord,
    Response,
    Schedule,
    Step,
    Task,
    Type,
    Undo,
)
from ..operations.registry import registry, sensitive_names
from ..payload import binding, codec
from ..placement import EXECUTOR, described
from ..states import Event, State
from ..store import values
from . import overview

if TYPE_CHECKING:
    from ..operations.registry import Declaration


def blocked_due(task: Task) -> datetime | None:
    """Return the due time of a Task, or None while the Task waits for other nodes of its graph."""
    return task.due_at if task.due_at < BLOCKED else None


def describe_line(name: str, uuid: UUID, count: int) -> str:
    """Return a sentence about an Instance that waits until earlier ones of its schedule have ended.

    ``count`` is the number of these earlier Instances; ``name`` and ``uuid`` identify the first of
    them.
    """
    others = f" and {count - 1:,} other{'s' if count > 2 else ''}" if count > 1 else ""
    return f"It waits behind {name} ({uuid}){others} because its schedule runs one at a time."


def describe_blocked(names: Iterable[str], count: int) -> str:
    """Return a sentence such as "It waits for merge and 2 others."

    ``count`` is the number of nodes that the Instance waits for; ``names`` has the names of some of
    these nodes.
    """
    named = list(names)
    others = count - len(named)
    if not named:
        return f"It waits for {count:,} nodes of its graph."
    more = f" and {others:,} other{'s' if others > 1 else ''}" if others > 0 else ""
    return f"It waits for {', '.join(named)}{more}."


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
PLACEMENT_FIELDS = ("needs", "resources")
TASK_FIELDS = ("collection", "priority", "due_at", "start_before", "attempt", "request")
LOG_FIELDS = ("time", "kind", "detail", "event", "state", "attempt", "level", "who", "message")
DAEMON_FIELDS = (
    "uuid",
    "host",
    "pid",
    "version",
    "release",
    "types",
    "labels",
    "capacity",
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
STEP_FIELDS = ("name", "attempt", "started", "finished", "until", "format")
WORKER_FIELDS = (
    *("worker", "pid", "loop", "host", "type", "instance", "since"),
    *("paused", "blocks"),
)
ENGINE_FIELDS = {
    "address": str,
    "hosts": int,
    "places": int,
    "room": int,
    "resources": dict,
    "lacks": dict,
    "error": str,
}


def plain_value(value: object) -> str | float:
    """Convert a value that JSON lacks; used as ``json.dumps(document, default=plain_value)``.

    A datetime becomes text in ISO 8601 with an offset, a timedelta becomes a number of seconds, and
    a UUID becomes text. Raises TypeError for any other type.
    """
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{value!r} cannot be converted to JSON")


def types() -> list[Document]:
    """Return a document for each Type that is registered or that this process declares.

    The documents are sorted by the identifiers of the Types.
    """
    rows = list(Type.objects.using(settings.DATABASE))
    missing = {task_type.identifier for task_type in registry} - {row.identifier for row in rows}
    found = [
        *(type(row) for row in rows),
        *(unregistered_type(registry.get(name)) for name in missing),
    ]
    return sorted(found, key=lambda document: document["identifier"])


def type(row: Type) -> Document:
    """Return a registered Type as a document; ``declared`` is True if this process declares it."""
    document = {name: getattr(row, name) for name in TYPE_FIELDS} | describe_hooks(row.hooks)
    document |= {name: getattr(row, name) or {} for name in PLACEMENT_FIELDS}
    return document | {
        "sensitive": row.sensitive or [],
        "late_writes": row.late_writes,
        "registered": row.registered,
        "declared": row.identifier in registry,
    }


def unregistered_type(task_type: Declaration) -> Document:
    """Return a document for a Type that this process declares but the database does not contain."""
    parameters = task_type.registration()
    document = {name: getattr(parameters, name) for name in TYPE_FIELDS}
    document |= describe_hooks(parameters.hooks)
    document |= {name: getattr(parameters, name) or {} for name in PLACEMENT_FIELDS}
    document["sensitive"] = parameters.sensitive or []
    return document | {"late_writes": 0, "registered": None, "declared": True}


def gate(row: Gate) -> Document:
    """Return a shut gate as a document; its ``type`` is None if the gate covers all Types."""
    document = {name: getattr(row, name) for name in GATE_FIELDS}
    return {"type": None if row.type is None else row.type.identifier} | document


def limit(row: Limit) -> Document:
    """Return the limits of a Type, or of one of its lanes, as a document."""
    document = {name: getattr(row, name) for name in LIMIT_FIELDS}
    return {"type": row.type.identifier} | document


def instance(row: Instance) -> Document:
    document = {name: getattr(row, name) for name in INSTANCE_FIELDS}
    return document | {"type": row.type.identifier}


def task(row: Task | None) -> Document | None:
    """Return the Task of a live Instance as a document; None if ``row`` is None."""
    if row is None:
        return None
    return {
        "due_at": blocked_due(row),
        "daemon": None if row.daemon is None else str(row.daemon),
        "request": split_request(row.request)[0],
    }


def pending_command(state: str, request: str) -> str:
    """Return the command that the daemon holding an Instance has not carried out yet, or ""."""
    done = {"pause": State.PAUSED, "resume": State.RUNNING}
    command, _ = split_request(request)
    return "" if done.get(command) == state else command


def queued_task(row: Task) -> Document:
    """Return a Task as a document for a list of the queue, with its Type and Instance."""
    document = {name: getattr(row, name) for name in TASK_FIELDS}
    return document | {
        "due_at": blocked_due(row),
        "instance": row.instance.uuid,
        "type": row.type.identifier,
        "daemon": None if row.daemon is None else str(row.daemon),
        "request": split_request(row.request)[0],
    }


def inputs(row: Inputs | None) -> Document | None:
    """Return the stored arguments and the saved context as a document.

    Its ``value`` is None for a pickle, because a pickle is never opened.
    """
    if row is None:
        return None
    value = _parse_json(masked_data(row)) if row.format == codec.JSON else None
    return {"format": row.format, "value": value, "carried": row.carried}


def masked_data(row: Inputs | Schedule | Undo) -> str:
    """Return the stored inputs of a row as JSON text, with sensitive arguments masked."""
    type = row.instance.type if isinstance(row, Inputs) else row.type
    return binding.mask_json(row.data, sensitive_names(type))


def response(row: Response | None) -> Document | None:
    """Return a Response as a document; ``value`` is the output if it is JSON and not in a file."""
    if row is None:
        return None
    document = {name: getattr(row, name) for name in ("content_type", "size", "file")}
    document["files"] = files(row)
    is_json = row.content_type == "application/json" and row.data is not None
    value = _parse_json(bytes(row.data)) if is_json else None  # type: ignore[arg-type]
    return document | {"value": value}


def files(row: Response) -> list[Document]:
    """Return the published files of a Response, without malformed entries."""
    listed = row.files if isinstance(row.files, list) else []
    return [entry for entry in listed if _is_file(entry)]


def _is_file(entry: object) -> bool:
    return isinstance(entry, dict) and all(
        isinstance(entry.get(name), kind) for name, kind in FILE_FIELDS.items()
    )


def _parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text, or None if the text is not valid JSON."""
    try:
        return json.loads(text, parse_float=_parse_number, parse_constant=_parse_number)
    except (ValueError, RecursionError):
        return None


def _parse_number(text: str) -> float:
    """Parse a number. Raises ValueError for NaN and infinity, which JSON lacks."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a JSON value")
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
        "labels": row.labels if isinstance(row.labels, dict) else {},
        "capacity": row.capacity if isinstance(row.capacity, dict) else {},
        "engine": _engine_document(row),
        "condition": overview.condition(row, now),
        "types": [each for each in types if isinstance(each, str) and each.isprintable()],
        "workers": [_worker_document(worker) for worker in workers],
    }


def _engine_document(row: Daemon) -> Document | None:
    """Return what a daemon knows of the engine of its executor; None if it has no executor."""
    known = row.engine if isinstance(row.engine, dict) else {}
    executor = row.labels.get(EXECUTOR) if isinstance(row.labels, dict) else None
    if not executor or not known:
        return None
    found = {
        name: known[name] if isinstance(known.get(name), kind) else kind()
        for name, kind in ENGINE_FIELDS.items()
    }
    return {"executor": executor} | found


def describe_engine(engine: Document) -> str:
    """Return a phrase for what a daemon knows of the engine of its executor."""
    name = engine["executor"]
    if engine["error"]:
        return f"{name}, which cannot be reached: {engine['error']}"
    sums = {"hosts": engine["hosts"], "places": engine["places"]} | engine["resources"]
    return f"{name} at {engine['address']}: {described(sums)}"


def _worker_document(worker: Document) -> Document:
    document = {name: worker.get(name) for name in WORKER_FIELDS}
    return document | {"paused": worker.get("paused") is True}


def time_or_none(text: object) -> datetime | None:
    """Return the time in a text that a daemon wrote, or None if it is no time with an offset."""
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return None if time is None or time.tzinfo is None else time


# One-line error messages of FAILED Instances.

MAX_HEADLINE = 200


def headline(message: str) -> str:
    """Return the line of an error message that names the error, cut to MAX_HEADLINE characters."""
    return text.shorten(text.headline(message).strip(), MAX_HEADLINE)


def headlines(instances: Iterable[Instance]) -> dict[int, str]:
    """Return a one-line error message for each FAILED Instance in a list, by primary key."""
    keys = [instance.pk for instance in instances if instance.state == State.FAILED]
    if not keys:
        return {}
    records = LogRecord.objects.using(settings.DATABASE)
    # Hooks and scans may write records about a FAILED Instance after the record of its failure.
    last = records.filter(instance=OuterRef("pk"), kind=Event.FAIL).order_by("-pk")
    rows = Instance.objects.using(settings.DATABASE).filter(pk__in=keys)
    found = rows.values_list("pk", Subquery(last.values("message")[:1]))
    return {key: headline(message or "") for key, message in found}


# The hooks that the end of an Instance has enqueued, and the hooks that a Type declares.

# At most this many hooks of an Instance are returned: the latest.
MAX_HOOKS = 100


@dataclass(frozen=True, kw_only=True)
class EnqueuedHook:
    """A hook that was enqueued because an Instance ended in ``state``.

    ``uuid`` belongs to the Instance that runs the hook. ``instance`` is that Instance, or None if
    it was removed later.
    """

    uuid: str
    state: str
    instance: Instance | None


def enqueued_hooks(
    instance: Instance, history: Sequence[LogRecord] | None = None
) -> list[EnqueuedHook]:
    """Return the latest MAX_HOOKS hooks that were enqueued when an Instance ended, oldest first.

    ``history`` has the hooks in the log of the Instance, newest first, if the caller has read it.
    """
    if not (instance.is_terminal or instance.is_hooked):
        return []  # the usual case when a client polls, without a query
    if history is not None:
        hooks = [each for each in history if each.kind == Kind.HOOK and each.detail]
        told = [(each.detail, each.state) for each in hooks]
    else:
        records = LogRecord.objects.using(settings.DATABASE).filter(instance=instance)
        rows = records.filter(kind=Kind.HOOK).exclude(detail="").order_by("-pk")
        told = list(rows.values_list("detail", "state")[:MAX_HOOKS])
    latest = told[:MAX_HOOKS][::-1]
    if not latest:
        return []
    rows = Instance.objects.using(settings.DATABASE).select_related("type")
    existing = {str(row.uuid): row for row in rows.filter(uuid__in=[uuid for uuid, _ in latest])}
    return [
        EnqueuedHook(uuid=uuid, state=state, instance=existing.get(uuid)) for uuid, state in latest
    ]


def describe_hooks(entries: list[dict[str, Any]] | None) -> dict[str, list[str]]:
    """Return the hooks that a Type declares, as lists of texts.

    The keys of the lists are the parameters that declare hooks: ``on_finished`` and ``on_failed``.
    """
    found: dict[str, list[str]] = {on: [] for on in values.HOOK_STATES}
    for hook in values.read_hooks(entries):
        found.setdefault(hook.on, []).append(
            f"{hook.type} with {_mask_inputs(hook)}" if hook.inputs else hook.type
        )
    return found


def mask_hooks(entries: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Return a copy of stored hooks in which the sensitive arguments are masked."""
    return [
        entry | ({"inputs": _mask_inputs(hook)} if hook.inputs else {})
        for entry, hook in zip(entries or (), values.read_hooks(entries), strict=True)
    ]


def _mask_inputs(hook: values.Hook) -> str:
    """Return the inputs of a hook as JSON text, with sensitive arguments masked."""
    row = Type.objects.using(settings.DATABASE).filter(identifier=hook.type).first()
    names = sensitive_names(row or Type(identifier=hook.type))
    return binding.mask_json(hook.inputs, names)


# The steps of an Instance, complete as documents or abbreviated for a table.

# A table shows at most this many characters of a result.
STEP_TEXT_SHOWN = 200


def step_document(row: Step, now: datetime) -> dict[str, Any]:
    """Return a step as a document; its ``value`` is the stored result.

    ``value`` is None if the step has no result, or if the result is a pickle, which is never
    opened.
    """
    is_json = row.data is not None and row.format == codec.JSON
    return {name: getattr(row, name) for name in STEP_FIELDS} | {
        "is_done": row.finished is not None or (row.until is not None and row.until <= now),
        "value": _parse_json(row.data) if is_json else None,  # type: ignore[arg-type]
    }


@dataclass(frozen=True, kw_only=True)
class ShortStep:
    """A step as a row of a table.

    ``text`` is the beginning of the step's result, or None if the result is not JSON.
    """

    name: str
    attempt: int
    started: datetime
    finished: datetime | None
    until: datetime | None
    format: str
    text: str | None

    @property
    def took(self) -> timedelta | None:
        """The duration of the step or of its sleep; None if the step has not ended."""
        end = self.finished or self.until
        return None if end is None else max(end - self.started, timedelta())


def abbreviate_steps(rows: QuerySet[Step], limit: int) -> list[ShortStep]:
    """Return the first ``limit`` steps for a table, reading only the beginning of each result."""
    found = rows.annotate(beginning=Left("data", STEP_TEXT_SHOWN + 1)).values(
        *STEP_FIELDS, "beginning"
    )
    return [_shorten_step(row) for row in found[:limit]]


def _shorten_step(row: dict[str, Any]) -> ShortStep:
    beginning = row.pop("beginning")
    is_text = beginning is not None and row["format"] == codec.JSON
    return ShortStep(**row, text=text.shorten(beginning, STEP_TEXT_SHOWN) if is_text else None)

"""The jobs of pygeoapi's processes: how they are enqueued, found, described and removed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ... import outside, queue
from ...conf import settings
from ...exceptions import (
    InvalidInputs,
    NotSerializable,
    QueueFull,
    TooLarge,
    UnknownInstance,
    WaitInTransaction,
    WaitTimeout,
)
from ...models import Instance, Response, Type
from ...ogc import documents
from .tasks import JSON, PREFIX, callback, type_of

# The list of jobs counts up to this number.
MOST_COUNTED = 10_000
# What :func:`enqueue` raises.
FULL = QueueFull
REFUSED = (InvalidInputs, NotSerializable, TooLarge, outside.Refused)
_BY = "pygeoapi"
_TIMES = ("created", "finished", "updated")


def enqueue(
    process: str, inputs: Mapping[str, Any], addresses: Mapping[str, str] | None = None
) -> Instance:
    """Enqueue a job. Its end is sent to the ``addresses`` of its client by hooks.

    Raises QueueFull, InvalidInputs, NotSerializable, TooLarge, and Refused if an address may not be
    reached.
    """
    declared = type_of(process).using(created_by=_BY)
    if addresses:
        for address in filter(None, addresses.values()):
            outside.check(address)
        hook = (callback, _of_end(addresses))
        declared = declared.using(on_finished=hook, on_failed=hook)
        inputs = {**inputs, "in_progress": addresses["in_progress"]}
    return declared.enqueue(**inputs)


def call_back(job: Instance, addresses: Mapping[str, str]) -> None:
    """Send the end of a job that is enqueued already to the addresses of its client."""
    callback.enqueue(uuid=str(job.uuid), **_of_end(addresses))


def _of_end(addresses: Mapping[str, str]) -> dict[str, str]:
    return {"success": addresses["success"], "failed": addresses["failed"]}


def wait(job: Instance, seconds: float) -> bool:
    """Wait for the end of a job, and return False if it takes longer."""
    try:
        job.wait(seconds)
    except (WaitTimeout, WaitInTransaction):
        return False
    return True


def find(job: str) -> Instance | None:
    """Return the Instance of a job, or None if there is no such job."""
    try:
        instance = queue.get(job)
    except UnknownInstance:
        return None
    return instance if instance.type.identifier.startswith(PREFIX) else None


def delete(job: Instance) -> None:
    queue.delete(job, by=_BY, cancel=True)


def result(job: Instance) -> tuple[str, Any] | None:
    """Return media type and outputs of a job, or None if it has none."""
    response = queue.response(job)
    if response is None or not response.content_type:
        return None
    body = response.body or b""
    if response.content_type == JSON:
        try:
            return JSON, json.loads(body)
        except ValueError:  # the process returned text that is not JSON
            return JSON, body.decode(errors="replace")
    if response.content_type.startswith("text/"):
        with suppress(UnicodeDecodeError):  # text in another encoding stays as it is
            return response.content_type, body.decode()
    return response.content_type, body


def page(status: str | None, limit: int | None, offset: int) -> dict[str, Any]:
    """Return jobs, newest first, and how many there are, counted up to ``MOST_COUNTED``."""
    types = Type.objects.using(settings.DATABASE).filter(identifier__startswith=PREFIX)
    keys = list(types.values_list("pk", flat=True))
    rows: Any = Instance.objects.using(settings.DATABASE).filter(type__in=keys)
    if status is not None:
        rows = documents.with_status(rows, [status])
    last = None if limit is None else offset + limit
    jobs = list(rows.select_related("type").order_by("-pk")[offset:last])
    return {"jobs": _documents(jobs), "numberMatched": rows[:MOST_COUNTED].count()}


def document(job: Instance) -> dict[str, Any]:
    """Return a job as pygeoapi wants it."""
    return _documents([job])[0]


def _documents(jobs: Sequence[Instance]) -> list[dict[str, Any]]:
    causes = documents.causes_of(jobs)
    responses = Response.objects.using(settings.DATABASE).filter(pk__in=[job.pk for job in jobs])
    media_types = dict(responses.values_list("pk", "content_type"))
    found = []
    for job in jobs:
        last = documents.last_transition(job) if job.is_terminal and job.reason else None
        status = documents.status_info(job, _no_address, causes.get(job.pk), last)
        found.append(
            {name: status[name] for name in ("status", "message", "progress")}
            | {name: status.get(name) for name in _TIMES}
            | {
                "identifier": str(job.uuid),
                "process_id": job.type.identifier.removeprefix(PREFIX),
                # pygeoapi sorts by it, so that it cannot be None.
                "started": status.get("started") or status["created"],
                "mimetype": media_types.get(job.pk) or JSON,
                "location": None,
            }
        )
    return found


def _no_address(name: str, *args: str) -> str:
    return ""

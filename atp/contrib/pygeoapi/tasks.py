"""A Type for each process of pygeoapi, and the Type that calls back the server of a client."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import yaml
from django.core.exceptions import ImproperlyConfigured

from ... import outside, queue
from ...authoring.context import Output
from ...authoring.task_type import TaskType, task_type
from ...exceptions import Defer, Fatal, Retry, UnknownInstance
from ...operations.registry import registry
from ...states import State

# The Type of a process has the process's identifier after this.
PREFIX = "pygeoapi."
JSON = "application/json"
_VARIABLE = "PYGEOAPI_CONFIG"
_INVALID = "pygeoapi.process.base.ProcessorExecuteError"
# In seconds: the time between two looks at a job that a client was answered before its end.
LOOK_EVERY = 10.0


def type_of(process: str) -> TaskType[Any, Any]:
    """Return the Type of a process, and declare it at the first call."""
    identifier = PREFIX + process
    if identifier in registry:
        return registry.get(identifier)  # type: ignore[return-value]
    return task_type(identifier, fatal_on=(_INVALID,))(run)


def run(
    context: Any,
    *,
    process: str,
    inputs: Any,
    outputs: Any = None,
    response: str = "raw",
    in_progress: str = "",
) -> Output:
    """Run a process as the configuration of this daemon has it.

    ``outputs`` and ``response`` are those of the body of the execution. The address
    ``in_progress`` is told once that the process runs.
    """
    from pygeoapi.util import to_json

    processor = _processor(process)
    processor.set_job_id(str(context.uuid))
    if in_progress and context.attempt == 1:
        _post(in_progress, b"{}", JSON)
    extra = {"outputs": outputs} if processor.supports_outputs else {}
    content_type, found = processor.execute(inputs, **extra)
    if isinstance(found, bytes) and found.isascii():
        found = found.decode()
    if response == "document":
        found = {"outputs": [found]}
    if not isinstance(found, (str, bytes)):
        found = to_json(found)
    return Output(found.encode() if isinstance(found, str) else found, content_type)


def _processor(process: str) -> Any:
    """Return the processor of a process. Raises Fatal if the configuration lacks it."""
    from pygeoapi.process.base import UnknownProcessError
    from pygeoapi.process.manager.base import BaseManager

    try:
        return BaseManager({"name": "ATP", "processes": _configured()}).get_processor(process)
    except UnknownProcessError:
        raise Fatal(
            f"{os.environ.get(_VARIABLE)!r}, the configuration of this daemon, has no process "
            f"{process!r}."
        ) from None


@cache
def _configured() -> dict[str, Any]:
    from pygeoapi.config import get_config

    return _processes(get_config())


def _processes(config: Any) -> dict[str, Any]:
    resources = (config or {}).get("resources") or {}
    return {name: each for name, each in resources.items() if each.get("type") == "process"}


@task_type(
    "pygeoapi-callback",
    timeout=60,
    max_restarts=8,
    max_retries=len(outside.RETRIES),
    backoff=outside.RETRIES,
)
def callback(
    context: Any,
    *,
    success: str,
    failed: str,
    uuid: str,
    type: str = "",
    state: str = "",
    reason: str = "",
) -> int | None:
    """Send the end of a job to an address of its client; it is a hook, or waits for the end."""
    try:
        job = queue.get(uuid)
    except UnknownInstance:
        raise Fatal("the job was removed") from None
    if not job.is_terminal:
        raise Defer("the job has not ended", after=LOOK_EVERY)
    if job.state != State.FINISHED:
        return _post(failed, b"{}", JSON) if failed else None
    result = queue.response(job)
    if result is None or not success:
        return None
    return _post(success, result.body or b"", result.content_type)


def _post(address: str, body: bytes, content_type: str) -> int:
    try:
        status = outside.post(address, body, content_type)
    except outside.Refused as error:
        raise Fatal(str(error)) from None
    except outside.Failed as error:
        raise Retry(str(error)) from None
    if not 200 <= status < 300:
        raise Retry(f"the client's server answered {status}")
    return status


def _declare_all() -> None:
    """Declare the Types of all processes. Raises ImproperlyConfigured."""
    path = os.environ.get(_VARIABLE)
    if not path:
        return
    try:
        with open(path, encoding="utf-8") as file:
            # Without pygeoapi, which takes much memory; only the names matter here.
            config = yaml.safe_load(file)
    except (OSError, yaml.YAMLError) as error:
        raise ImproperlyConfigured(f"{_VARIABLE}: {path} cannot be read: {error}") from error
    for process in _processes(config):
        type_of(process)


_declare_all()

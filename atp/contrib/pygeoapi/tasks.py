"""A Type for each process of pygeoapi, and the Type that calls a client's server back."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml
from django.core.exceptions import ImproperlyConfigured

from ... import outside, queue
from ...authoring.context import Output
from ...authoring.parameters import TypeParameters
from ...authoring.task_type import TaskType, task_type
from ...exceptions import Defer, Fatal, InvalidType, Retry, UnknownInstance
from ...operations.registry import registry
from ...states import State
from ...text import did_you_mean

# The Type of a process has the process's identifier after this.
PREFIX = "pygeoapi."
JSON = "application/json"
_VARIABLE = "PYGEOAPI_CONFIG"
_INVALID = "pygeoapi.process.base.ProcessorExecuteError"
# In seconds: the time between two looks at a job that a client was answered before its end.
LOOK_EVERY = 10.0


# The key with the options of the Type in the configuration of a process.
OPTIONS = "atp"
# The parameters of a Type that a configuration cannot set.
_NOT_OPTIONS = ("public", "serializer")


def declare(processes: Mapping[str, Any]) -> None:
    """Declare the Types of processes, by their configurations. Raises ImproperlyConfigured."""
    for process, configured in processes.items():
        identifier = PREFIX + process
        if identifier in registry:
            continue
        place = f"The configuration of pygeoapi, resources.{process}"
        options = configured.get(OPTIONS) or {}
        if not isinstance(options, dict):
            raise ImproperlyConfigured(f"{place}.{OPTIONS} must have options by name.")
        known = sorted({*TypeParameters.__annotations__} - {*_NOT_OPTIONS})
        for name in options:
            if name not in known:
                raise ImproperlyConfigured(
                    f"{place}.{OPTIONS}: there is no option {name!r}.{did_you_mean(name, known)}"
                )
        try:
            task_type(identifier, **{"fatal_on": (_INVALID,), **options})(run)
        except (InvalidType, TypeError, ValueError) as error:
            raise ImproperlyConfigured(f"{place}: {error}") from error


def type_of(process: str) -> TaskType[Any, Any]:
    """Return the Type of a process that is declared."""
    return registry.get(PREFIX + process)  # type: ignore[return-value]


def run(
    context: Any,
    *,
    process: str,
    inputs: Any,
    outputs: Any = None,
    response: str = "raw",
    in_progress: str = "",
) -> Output:
    """Run a process as this daemon's configuration says.

    ``outputs`` and ``response`` come from the body of the execution. The address ``in_progress``
    gets one request when the process starts.
    """
    # Its function to_json() would store "<" as "&lt;".
    from pygeoapi.util import json_serial

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
        found = json.dumps(found, default=json_serial, separators=(",", ":"))
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
            # Without pygeoapi, which takes much memory. Only names and options matter here.
            config = yaml.safe_load(file)
    except (OSError, yaml.YAMLError) as error:
        raise ImproperlyConfigured(f"{_VARIABLE}: {path} cannot be read: {error}") from error
    declare(_processes(config))


_declare_all()

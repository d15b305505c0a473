"""A Type for each asynchronous WPS process, its handler, and the context that a process gets."""

from __future__ import annotations

import contextlib
import logging
import posixpath
from typing import Any

from eoxserver.services.ows.wps.context import BaseContext, ContextError
from eoxserver.services.ows.wps.util import InMemoryURLResolver
from eoxserver.services.ows.wps.v10.execute_util import (
    decode_output_requests,
    decode_raw_inputs,
    pack_outputs,
    parse_params,
)

from ... import queue
from ...authoring.context import Output
from ...authoring.task_type import task_type
from ...exceptions import (
    ATPError,
    Defer,
    Fatal,
    InvalidType,
    Retry,
    Unavailable,
    UnknownInstance,
)
from . import jobs

# The attribute of a process's class with the parameters of its Type.
OPTIONS = "atp_options"
# What a process cannot choose: its inputs are JSON, and its Type has the name of the process.
_REFUSED = ("formerly", "public", "serializer")
# What the client has sent will not be better the next time.
_FATAL = "eoxserver.services.ows.wps.exceptions.InvalidParameterValue"
# With these a process asks for another attempt.
_AGAIN = (Retry, Defer, Unavailable)
_FAILURE_NAME = "failure.json"


# Contexts


class JobContext(BaseContext):
    """The context of a job outside of its attempts: in ``initialize`` and some callbacks."""

    def __init__(self, job: str, process: Any) -> None:
        self._job, self._process = job, process
        # Records of loggers below "eoxserver" might not reach the root, and so not the job's log.
        logger = logging.getLogger(f"{jobs.PREFIX}{jobs.identifier_of(process)}")
        self._logger = logging.LoggerAdapter(logger, {"job_id": job})

    @property
    def identifier(self) -> str:
        return self._job

    @property
    def logger(self) -> Any:
        return self._logger

    @property
    def workspace_path(self) -> str:
        raise ContextError("There is a workspace only while the process is executed.")

    def publish(self, path: str) -> tuple[str, str]:
        raise ContextError("Files can be published only while the process is executed.")

    def update_progress(self, progress: float, message: str | None = None) -> None:
        raise ContextError("There is a progress only while the process is executed.")

    def call_back(self, name: str, *args: Any) -> None:
        """Call a callback if the process has it. Its errors are logged, and change nothing else."""
        callback = getattr(self._process, name, None)
        if callback is None:
            return
        try:
            callback(self, *args)
        except Exception:
            self.logger.exception("%s() of the process has failed.", name)


class RunningContext(JobContext):
    """The context of a job in an attempt; the workspace is the attempt's scratch directory."""

    def __init__(self, context: Any, process: Any) -> None:
        super().__init__(context.identifier or str(context.uuid), process)
        self._context = context

    @property
    def workspace_path(self) -> str:
        return str(self._context.scratch)

    def publish(self, path: str) -> tuple[str, str]:
        """Publish a file of the workspace; return its path and its address.

        Raises ContextError if it is no file of the workspace.
        """
        workspace = self._context.scratch.resolve()
        file = (workspace / path).resolve()
        if not file.is_relative_to(workspace) or not file.is_file():
            raise ContextError(f"{path!r} cannot be published: it is no file of the workspace.")
        stored = posixpath.basename(self._context.publish(file)["path"])
        return str(file), jobs.address("file", self.identifier, self._context.attempt, stored)

    def update_progress(self, progress: float, message: str | None = None) -> None:
        """Report the progress in percent. This ends the attempt of a job that is cancelled."""
        self._context.progress(progress / 100, message=message or "")
        self.call_back("on_progress_update", int(progress), message)
        self._context.check()


# The handler


def run(context: Any, *, inputs: Any, form: Any, parts: Any) -> Output:
    """Execute a process, and return the ExecuteResponse with its outputs.

    The arguments are what :meth:`.jobs.Request.packed` returns.
    """
    process = jobs.process_of(context.type)
    job = RunningContext(context, process)
    request = jobs.Request.unpacked(inputs, form, parts)
    try:
        with contextlib.chdir(context.scratch):
            content, content_type = _execute(process, request, job)
    except _AGAIN:
        raise
    except Exception as error:
        _keep_failure(context, job, error)
        raise
    return Output(content, content_type)


def _execute(process: Any, request: jobs.Request, job: RunningContext) -> tuple[bytes, str]:
    job.call_back("on_started", 0, None)
    input_defs, output_defs = parse_params(process.inputs), parse_params(process.outputs)
    decoded = decode_output_requests(request.form, output_defs)
    resolver = InMemoryURLResolver(request.parts, job.logger)
    decoded.update(decode_raw_inputs(request.raw_inputs, input_defs, resolver))
    outputs = process.execute(context=job, **decoded)
    packed = pack_outputs(outputs, request.form, output_defs)
    encoder = jobs.encoder_of(process, request, job.identifier)
    encoder.inputs = decoded
    content, content_type = encoder.serialize(encoder.encode_response(packed))
    job.call_back("on_succeeded", packed)
    return content, content_type


def _keep_failure(context: Any, job: JobContext, error: Exception) -> None:
    """Keep an exception for the ExecuteResponse. Without it, the log has the message alone."""
    try:
        context.publish(jobs.packed_failure(error), _FAILURE_NAME, jobs.FAILURE)
    except Exception:
        job.logger.exception("The exception cannot be kept for the ExecuteResponse.")


@task_type("wps-failed", max_restarts=8, max_retries=3)
def failed(
    context: Any, *, uuid: str, type: str, state: str, reason: str, identifier: str | None = None
) -> None:
    """Call ``on_failed`` of a process whose job has failed, whatever has ended the job."""
    process = jobs.process_of(type)
    if process is None:
        raise Fatal(f"This release has no process of the Type {type!r}.")
    try:
        job = queue.get(uuid)
    except UnknownInstance:
        raise Fatal("the job was removed") from None
    process.on_failed(JobContext(identifier or uuid, process), jobs.failure_of(job))


# The Types


def declare(process: Any) -> None:
    """Declare the Type of a process. Raises InvalidType, which names the class of the process."""
    label = f"{type(process).__module__}.{type(process).__qualname__}.{OPTIONS}"
    options = getattr(process, OPTIONS, {})
    if not isinstance(options, dict):
        raise InvalidType(f"{label} must be a dictionary, not {options!r}.")
    refused = [name for name in _REFUSED if name in options]
    if refused:
        raise InvalidType(f"{label}: a process cannot choose {refused[0]}.")
    parameters: dict[str, Any] = {"fatal_on": _FATAL, **options}
    retention = getattr(process, "retention_period", None)
    if retention is not None:
        parameters.setdefault("retention", retention)
    if hasattr(process, "on_failed"):
        hooks = options.get("on_failed", [])
        parameters["on_failed"] = [failed, *(hooks if isinstance(hooks, list) else [hooks])]
    for name in ("inputs", "outputs"):
        # EOxServer draws the lineage of pairs alone.
        if isinstance(defined := getattr(process, name), dict):
            setattr(process, name, list(defined.items()))
    try:
        task_type(jobs.PREFIX + jobs.identifier_of(process), **parameters)(run)
    except ATPError as error:
        raise InvalidType(f"{label}: {error}") from error


for _process in jobs.asynchronous().values():
    declare(_process)

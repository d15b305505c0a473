"""The manager: pygeoapi's interface to jobs, with the queue behind it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from threading import Thread
from typing import Any, TypeVar

import django
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections
from pygeoapi.process.base import (
    JobNotFoundError,
    JobResultNotFoundError,
    ProcessorExecuteError,
)
from pygeoapi.process.manager.base import BaseManager
from pygeoapi.util import (
    JobStatus,
    ProcessExecutionMode,
    RequestedProcessExecutionMode,
    is_request_allowed,
)

# How long a synchronous execution waits for its result, in seconds.
WAIT = 60.0
# How long the answer to a synchronous execution waits for a server of its client, in seconds.
LONGEST_CALL = 10.0
JSON = "application/json"
# The code of a request, or of a job, that has failed.
INVALID = "InvalidParameterValue"
_VARIABLE = "DJANGO_SETTINGS_MODULE"
LOGGER = logging.getLogger(__name__)
Method = TypeVar("Method", bound=Callable[..., Any])


def renewing_connections(method: Method) -> Method:
    """Close connections to databases that are broken or too old, before and after a call.

    Django does this for its own requests only.
    """

    @wraps(method)
    def renewing(*args: Any, **kwargs: Any) -> Any:
        close_old_connections()
        try:
            return method(*args, **kwargs)
        finally:
            close_old_connections()

    return renewing  # type: ignore[return-value]


class RequestRefused(ProcessorExecuteError):
    """An execution cannot be enqueued; the message says why."""

    ogc_exception_code = INVALID
    http_status_code = 400


class QueueIsFull(ProcessorExecuteError):
    """The queue takes no more jobs of this process for the moment."""

    http_status_code = 429


class Manager(BaseManager):
    """A manager whose jobs are Instances: daemons run them, and they survive any restart.

    ``connection`` in pygeoapi's configuration is the settings module of the Django project. It is
    not needed if pygeoapi runs within the project, or if DJANGO_SETTINGS_MODULE names it.
    """

    def __init__(self, manager_def: dict[str, Any]) -> None:
        super().__init__(manager_def)
        self.is_async = True
        self.supports_subscribing = True
        if not apps.ready:
            if self.connection and not os.environ.get(_VARIABLE):
                os.environ[_VARIABLE] = str(self.connection)
            if not settings.configured:
                self._check_connection()
            django.setup()
        from . import jobs, tasks  # their models need Django to be set up

        self._jobs = jobs
        tasks.declare(self.processes)

    def _check_connection(self) -> None:
        """Raise ImproperlyConfigured if there is no settings module, such as without PYTHONPATH."""
        name = os.environ.get(_VARIABLE, "")
        try:
            is_there = bool(name) and find_spec(name) is not None
        except ModuleNotFoundError:  # its package
            is_there = False
        if not is_there:
            raise ImproperlyConfigured(
                f"The configuration of pygeoapi, server.manager.connection: there is no settings "
                f"module {name!r}. PYTHONPATH must have the folder of the Django project."
            )

    @renewing_connections
    def execute_process(
        self,
        process_id: str,
        data_dict: dict[str, Any],
        execution_mode: RequestedProcessExecutionMode | None = None,
        requested_outputs: dict[str, Any] | None = None,
        subscriber: Any = None,
        requested_response: str = "raw",
    ) -> tuple[str, str, Any, JobStatus, dict[str, str] | None]:
        """Enqueue a process, and wait for its result if the execution is synchronous.

        Returns the identifier of the job, the media type, the outputs, the status and headers. If
        the result takes longer than ``WAIT``, the answer is that of an asynchronous execution.
        Raises UnknownProcessError, RequestRefused, QueueIsFull.
        """
        self.processor = self.get_processor(process_id)
        inputs = {
            "process": process_id,
            "inputs": data_dict,
            "outputs": requested_outputs,
            "response": getattr(requested_response, "value", requested_response),
        }
        addresses = _addresses(subscriber)
        if _is_async(self.processor, execution_mode):
            job = self._enqueue(process_id, inputs, addresses)
            return self._accepted(job)
        self._check(addresses)
        job = self._enqueue(process_id, inputs)
        self._call(self._send_in_progress_notification, subscriber)
        if not self._jobs.wait(job, WAIT):
            if addresses:
                self._jobs.call_back(job, addresses)
            return self._accepted(job)
        headers = {"Preference-Applied": RequestedProcessExecutionMode.wait.value}
        wished = execution_mode == RequestedProcessExecutionMode.wait
        return str(job.uuid), *self._answer(job, subscriber), None if wished else headers

    def _enqueue(self, process: str, inputs: Any, addresses: dict[str, str] | None = None) -> Any:
        try:
            return self._jobs.enqueue(process, inputs, addresses)
        except self._jobs.FULL as error:
            raise QueueIsFull(user_msg=str(error)) from error
        except self._jobs.REFUSED as error:
            raise RequestRefused(user_msg=str(error)) from error

    def _accepted(self, job: Any) -> tuple[str, str, Any, JobStatus, dict[str, str]]:
        headers = {"Preference-Applied": RequestedProcessExecutionMode.respond_async.value}
        return str(job.uuid), JSON, None, JobStatus.accepted, headers

    def _answer(self, job: Any, subscriber: Any) -> tuple[str, Any, JobStatus]:
        """Return media type, outputs and status of an ended job, and call the client's server."""
        document = self._jobs.document(job)
        if document["status"] == JobStatus.successful.value:
            media_type, outputs = self._jobs.result(job) or (JSON, None)
            self._call(self._send_success_notification, subscriber, outputs)
            return media_type, outputs, JobStatus.successful
        self._call(self._send_failed_notification, subscriber)
        text = f"Error executing process: {document['message']}"
        return JSON, {"type": INVALID, "code": INVALID, "description": text}, JobStatus.failed

    def _check(self, addresses: dict[str, str] | None) -> None:
        """Raise RequestRefused if pygeoapi's own rules forbid to call one of these addresses."""
        for address in filter(None, (addresses or {}).values()):
            try:
                allowed = is_request_allowed(address, self.processor.allow_internal_requests)
            except OSError:  # its name has no address at the moment
                continue
            except (ValueError, TypeError):  # it is not an address
                allowed = False
            if not allowed:
                raise RequestRefused(user_msg=f"The address {address!r} cannot be called.")

    def _call(self, send: Callable[..., None], subscriber: Any, *outputs: Any) -> None:
        """Call a server of the client. The job has its result even if that server is dead."""

        def call() -> None:
            try:
                send(subscriber, *outputs)
            except Exception as error:
                LOGGER.warning("The server of a client was not called: %s", error)

        if subscriber:
            thread = Thread(target=call, daemon=True)
            thread.start()
            thread.join(LONGEST_CALL)

    @renewing_connections
    def get_jobs(
        self, status: Any = None, limit: int | None = None, offset: int | None = None
    ) -> dict[str, Any]:
        """Return a page of the jobs, newest first, and how many there are.

        ``numberMatched`` counts no further than :data:`.jobs.MOST_COUNTED`.
        """
        return self._jobs.page(getattr(status, "value", status), limit, offset or 0)

    @renewing_connections
    def get_job(self, job_id: str) -> dict[str, Any]:
        """Return a job. Raises JobNotFoundError."""
        return self._jobs.document(self._find(job_id))

    @renewing_connections
    def get_job_result(self, job_id: str) -> tuple[str, Any]:
        """Return media type and outputs of a job that was successful.

        Raises JobNotFoundError, JobResultNotFoundError.
        """
        found = self._jobs.result(self._find(job_id))
        if found is None:
            raise JobResultNotFoundError
        return found

    @renewing_connections
    def delete_job(self, job_id: str) -> bool:
        """Cancel a job that has not ended, and remove one that has. Raises JobNotFoundError."""
        self._jobs.delete(self._find(job_id))
        return True

    def _find(self, job_id: str) -> Any:
        job = self._jobs.find(job_id)
        if job is None:
            raise JobNotFoundError
        return job

    def __repr__(self) -> str:
        return f"<Manager of ATP> {self.name}"


def _is_async(processor: Any, wished: RequestedProcessExecutionMode | None) -> bool:
    """Return True if an execution is asynchronous, by the rules of pygeoapi's own managers."""
    options = processor.metadata.get("jobControlOptions", [])
    if wished == RequestedProcessExecutionMode.respond_async:
        return ProcessExecutionMode.async_execute.value in options
    return ProcessExecutionMode.sync_execute.value not in options


def _addresses(subscriber: Any) -> dict[str, str] | None:
    if not subscriber:
        return None
    return {
        "success": subscriber.success_uri or "",
        "failed": subscriber.failed_uri or "",
        "in_progress": subscriber.in_progress_uri or "",
    }

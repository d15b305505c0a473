"""The backend: EOxServer's interface to asynchronous jobs, with the queue behind it."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.urls import NoReverseMatch
from eoxserver.services.ows.wps.exceptions import (
    FileSizeExceeded,
    InvalidParameterValue,
    OWS10Exception,
    ServerBusy,
    StorageNotSupported,
)
from rest_framework.exceptions import NotAuthenticated

from ... import queue
from ...exceptions import (
    DuplicateIdentifier,
    InvalidInputs,
    NotSerializable,
    QueueFull,
    TooLarge,
    UnknownInstance,
)
from ...models import Instance
from ...ogc import access
from ...web import permissions
from . import jobs, tasks

APP = "atp.contrib.eoxserver"
CHANNEL = "WPS"


class NotAllowed(OWS10Exception):
    """The rule ``ATP["OGC_LANE"]`` lets this client execute nothing."""

    http_status_code = 403

    def __init__(self) -> None:
        super().__init__("NoApplicableCode", "NotAuthenticated", "You are not logged in.")


class Backend:
    """An asynchronous backend whose jobs are Instances: daemons run them, through any restart."""

    supported_versions = ("1.0.0",)

    def __init__(self) -> None:
        if not apps.is_installed(APP):
            raise ImproperlyConfigured(
                f"EOXS_ASYNC_BACKENDS names {APP}.Backend: put {APP!r} into INSTALLED_APPS, too, "
                "so that the daemons run its jobs."
            )

    def execute(
        self,
        process: Any,
        raw_inputs: Any,
        resp_form: Any,
        extra_parts: Any = None,
        job_id: str | None = None,
        version: str = "1.0.0",
        request: Any = None,
        **kwargs: Any,
    ) -> str:
        """Enqueue a job, and return its identifier.

        ``initialize`` of the process is called first, outside of any transaction of the queue, and
        its errors are the caller's. Raises OWS10Exception.
        """
        type = jobs.PREFIX + jobs.identifier_of(process)
        if jobs.process_of(type) is None:
            raise StorageNotSupported("This process does not allow asynchronous execution!")
        if version not in self.supported_versions:
            raise InvalidParameterValue(f"WPS {version} is not supported here.", "version")
        job = _new_id(job_id)
        options = {"identifier": job, **_options_of(request)}
        _check_documents(process, jobs.Request(raw_inputs, resp_form), job)
        context = tasks.JobContext(job, process)
        if hasattr(process, "initialize"):
            process.initialize(context, raw_inputs, resp_form, extra_parts)
        context.call_back("on_accepted")
        try:
            _enqueue(type, options, jobs.Request(raw_inputs, resp_form, extra_parts or {}))
        except BaseException:
            context.call_back("discard")
            raise
        return job

    def get_response_url(self, job_id: str) -> str:
        """Return the address of the ExecuteResponse of a job."""
        return jobs.address("job", job_id)

    def get_status(self, job_id: str) -> str:
        """Return ACCEPTED, STARTED, PAUSED, CANCELLED, FAILED or SUCCEEDED.

        This and the following methods raise UnknownInstance if there is no such job.
        """
        return jobs.status_of(_find(job_id))

    def purge(self, job_id: str, **kwargs: Any) -> None:
        """Remove a job with its files, and call ``discard`` of its process.

        A job that is being executed is cancelled, and stays until its retention is over.
        """
        job = _find(job_id)
        process = jobs.process_of(job.type.identifier)
        queue.delete(job, by=CHANNEL, cancel=True)
        tasks.JobContext(job_id, process).call_back("discard")

    def cancel(self, job_id: str, **kwargs: Any) -> None:
        """Cancel a job. Raises IllegalTransition if it has ended."""
        queue.cancel(_find(job_id), by=CHANNEL)

    def pause(self, job_id: str, **kwargs: Any) -> None:
        """Pause a job at its next progress. Raises IllegalTransition if it is not executed."""
        queue.pause(_find(job_id), by=CHANNEL)

    def resume(self, job_id: str, **kwargs: Any) -> None:
        """Let a paused job go on. Raises IllegalTransition if it is not paused."""
        queue.resume(_find(job_id), by=CHANNEL)


def _find(job: str) -> Instance:
    found = jobs.find(job)
    if found is None:
        raise UnknownInstance(f"There is no job {job!r}.")
    return found


def _new_id(wished: str | None) -> str:
    if wished is None:
        return str(uuid4())
    if not jobs.is_job_id(wished):
        raise InvalidParameterValue(f"{wished!r} cannot be the identifier of a job.", "job_id")
    if jobs.find(wished) is not None:
        raise InvalidParameterValue(f"There is a job {wished!r} already.", "job_id")
    return wished


def _options_of(request: Any) -> dict[str, str]:
    """Return whose the job is; a job that no request has made is nobody's. Raises NotAllowed."""
    if request is None:
        return {"created_by": CHANNEL}
    access_request = with_user(request)
    try:
        lane = access.lane(access_request)
    except NotAuthenticated:
        raise NotAllowed from None
    return {"collection": lane, "created_by": permissions.actor(access_request, CHANNEL)}


def with_user(request: Any) -> Any:
    """Return a request that has a user, also where the project has no users."""
    if not hasattr(request, "user"):
        from django.contrib.auth.models import AnonymousUser  # it needs the app

        request.user = AnonymousUser()
    return request


def _check_documents(process: Any, request: jobs.Request, job: str) -> None:
    """Draw the first document, which tells before anything is written whether the others can be."""
    try:
        encoder = jobs.encoder_of(process, request, job)
    except NoReverseMatch:
        raise ImproperlyConfigured(
            f'The URLs lack those of the jobs: path("wps-jobs/", include("{APP}.urls")).'
        ) from None
    encoder.encode_accepted()


def _enqueue(type: str, options: dict[str, str], request: jobs.Request) -> None:
    declared: Any = queue.declared(type)
    try:
        declared.using(**options).enqueue(**request.packed())
    except QueueFull as error:
        raise ServerBusy(str(error)) from error
    except TooLarge as error:
        raise FileSizeExceeded(str(error), "DataInputs") from error
    except (InvalidInputs, NotSerializable) as error:
        raise InvalidParameterValue(str(error), "DataInputs") from error
    except DuplicateIdentifier as error:
        raise InvalidParameterValue(str(error), "job_id") from error

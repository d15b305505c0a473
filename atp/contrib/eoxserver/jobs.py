"""The jobs of WPS processes: what they keep of a request, and the ExecuteResponse of each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin

from django.core.files.storage import storages
from django.urls import reverse
from eoxserver.core.config import get_eoxserver_config
from eoxserver.services.ows.common.config import CapabilitiesConfigReader
from eoxserver.services.ows.wps.exceptions import OWS10Exception
from eoxserver.services.ows.wps.parameters import InputData, InputReference, ResponseDocument
from eoxserver.services.ows.wps.parameters.response_form import Output
from eoxserver.services.ows.wps.util import get_processes
from eoxserver.services.ows.wps.v10.encoders import WPS10ExecuteResponseXMLEncoder
from eoxserver.services.ows.wps.v10.util import ns_wps

from ... import queue
from ...conf import settings
from ...models import Instance, LogRecord, Type
from ...reports import documents, overview
from ...reports.explaining.explain import main_causes
from ...states import Event, Reason, State
from ...text import headline

# The Type of a process has the process's identifier after this.
PREFIX = "wps."
# The content type of the file in which a failed attempt keeps its exception.
FAILURE = "application/vnd.atp.wps-failure+json"
# As eoxs_wps_async wants it.
_JOB_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


# Processes, and their Types


def identifier_of(process: Any) -> str:
    """Return the identifier of a process, as EOxServer finds it."""
    return getattr(process, "identifier", None) or type(process).__name__


def asynchronous() -> dict[str, Any]:
    """Return the asynchronous processes of this release, by identifier."""
    found = [each for each in get_processes() if getattr(each, "asynchronous", False)]
    return {identifier_of(each): each for each in found}


def process_of(type: str) -> Any:
    """Return the process of a Type; None if the Type is not that of a process.

    A project may have a Type of its own whose identifier begins like those of processes.
    """
    return asynchronous().get(type.removeprefix(PREFIX)) if type.startswith(PREFIX) else None


# What a job keeps of its request: plain values, of which the queue makes JSON

_PARAMETER = ("identifier", "title", "abstract", "uom", "crs", "mime_type", "encoding", "schema")
_REFERENCE = ("href", "headers", "body", "method", "body_href")
_FIELDS: dict[type, tuple[str, ...]] = {
    InputData: (*_PARAMETER, "data", "asurl"),
    InputReference: (*(each for each in _PARAMETER if each not in ("uom", "crs")), *_REFERENCE),
    Output: (*_PARAMETER, "as_reference"),
    ResponseDocument: ("lineage", "status", "store_response"),
}
_KINDS = {"data": InputData, "reference": InputReference}


@dataclass(frozen=True)
class Request:
    """The request of a job: inputs before they are decoded, wanted outputs, parts by Content-Id."""

    raw_inputs: Mapping[str, Any]
    form: Any
    parts: Mapping[str, bytes] = field(default_factory=dict)

    def packed(self) -> dict[str, Any]:
        """Return the request as inputs of its Type."""
        return {
            "inputs": {name: _packed_input(each) for name, each in self.raw_inputs.items()},
            "form": _packed(self.form)
            | {"outputs": [_packed(each) for each in self.form.values()]},
            "parts": dict(self.parts),
        }

    @classmethod
    def unpacked(cls, inputs: Mapping[str, Any], form: Any, parts: Mapping[str, bytes]) -> Request:
        """Return the request that :meth:`packed` has returned."""
        document = ResponseDocument(**{name: form[name] for name in _FIELDS[ResponseDocument]})
        for each in form["outputs"]:
            document.set_output(Output(**each))
        return cls({name: _unpacked_input(each) for name, each in inputs.items()}, document, parts)


def _packed(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in _FIELDS[type(value)]}


def _packed_input(value: Any) -> dict[str, Any]:
    """Return an input under its kind; a parameter of the HTTP request can be any value."""
    for kind, known in _KINDS.items():
        if type(value) is known:
            return {kind: _packed(value)}
    return {"value": value}


def _unpacked_input(packed: Mapping[str, Any]) -> Any:
    [(kind, value)] = packed.items()
    if kind not in _KINDS:
        return value
    if isinstance(value.get("data"), list):
        # The corners of a box.
        value = {**value, "data": tuple(value["data"])}
    return _KINDS[kind](**value)


# Finding jobs


def is_job_id(text: object) -> bool:
    return isinstance(text, str) and _JOB_ID.fullmatch(text) is not None


def find(job: str) -> Instance | None:
    """Return the Instance of a job, or None if there is no such job."""
    if not is_job_id(job):
        return None
    types = [PREFIX + each for each in asynchronous()]
    keys = Type.objects.using(settings.DATABASE).filter(identifier__in=types).values("pk")
    rows = Instance.objects.using(settings.DATABASE).select_related("type")
    return rows.filter(type__in=keys, identifier=job).first()


def address(name: str, *args: object) -> str:
    """Return the absolute address of a view, on the host of EOxServer's ``http_service_url``."""
    service = CapabilitiesConfigReader(get_eoxserver_config()).http_service_url
    return urljoin(service, reverse(f"atp_eoxserver:{name}", args=args))


# The state of a job

_STATUS = {
    State.ACCEPTED: "ACCEPTED",
    State.SCHEDULED: "ACCEPTED",
    State.RUNNING: "STARTED",
    State.PAUSED: "PAUSED",
    State.FINISHED: "SUCCEEDED",
    State.FAILED: "FAILED",
}


def status_of(job: Instance) -> str:
    """Return the status of a job, as EOxServer's interface for backends names it."""
    if job.state == State.FAILED and job.reason in (Reason.CANCELLED, Reason.DROPPED):
        return "CANCELLED"
    return _STATUS[State(job.state)]


def encoder_of(process: Any, request: Request, job: str) -> Any:
    """Return EOxServer's encoder of the ExecuteResponse of a job."""
    return WPS10ExecuteResponseXMLEncoder(
        process, request.form, request.raw_inputs, status_location=address("job", job)
    )


def document(job: Instance) -> bytes:
    """Return the ExecuteResponse of a job that has not finished, drawn from its Instance.

    If the job waits, the message says why. If it has finished meanwhile, the Response has the
    document.
    """
    inputs = queue.inputs(job)
    request = (
        Request({}, ResponseDocument()) if inputs is None else Request.unpacked(**inputs.value)
    )
    encoder = encoder_of(process_of(job.type.identifier), request, job.identifier or "")
    percent = 100 * (job.progress or 0.0)
    if job.state == State.FAILED:
        tree = encoder.encode_failed(failure_of(job))
    elif job.state == State.PAUSED:
        tree = encoder.encode_paused(percent)
    elif job.state == State.RUNNING:
        tree = encoder.encode_started(percent, job.progress_message)
    else:
        tree = encoder.encode_accepted()
        cause = main_causes([job], overview.now(), errors=False, daemons=False).get(job.pk)
        if cause is not None:
            tree.find(f".//{ns_wps('ProcessAccepted')}").text = cause.sentence
    content: bytes = encoder.serialize(tree)[0]
    return content


def packed_failure(error: Exception) -> bytes:
    """Return what the ExecuteResponse says of an exception, to be kept in a file of the job."""
    is_known = isinstance(error, OWS10Exception)
    code = error.code if is_known else "NoApplicableCode"  # type: ignore[attr-defined]
    locator = error.locator if is_known else type(error).__name__  # type: ignore[attr-defined]
    return json.dumps({"code": code, "locator": locator, "message": str(error)}).encode()


def failure_of(job: Instance) -> Any:
    """Return the exception with which a job has failed, as one of EOxServer's.

    If no attempt has raised one, as if a worker was killed, the log says what has happened.
    """
    log = LogRecord.objects.using(settings.DATABASE).of_instance(job)
    end = log.filter(kind=Event.FAIL).last()
    kept = None if end is None else _kept_failure(job, end.attempt)
    if kept is not None:
        return OWS10Exception(**kept)
    message = headline(end.message) if end is not None else ""
    return OWS10Exception("NoApplicableCode", job.reason, message or Reason(job.reason).label)


def _kept_failure(job: Instance, attempt: int | None) -> Any:
    response = queue.response(job)
    for file in documents.files(response) if response is not None else []:
        if file["content_type"] == FAILURE and file["attempt"] == attempt:
            try:
                with storages[settings.STORAGE].open(file["path"]) as opened:
                    return json.load(opened)
            except (OSError, ValueError):
                return None
    return None

"""The JSON documents of OGC API – Processes, Part 1, version 1.0, which also fit most of 2.0."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from django.db.models import Q

from ..conf import settings
from ..models import Instance, LogRecord, Task
from ..operations.registry import Declaration
from ..reports import overview
from ..reports.explaining.explain import MainCause, main_causes
from ..states import Reason, State
from ..text import headline, shorten
from .processes import inputs_of, offer_of, outputs_of

Document = dict[str, Any]
# Returns the absolute address of a view, by its name and arguments.
Address = Callable[..., str]

JSON = "application/json"
OPENAPI = "application/vnd.oai.openapi+json;version=3.0"
REL = "http://www.opengis.net/def/rel/ogc/1.0/"
CONFORMANCE = "http://www.opengis.net/spec/ogcapi-processes-1/1.0/conf/"
CLASSES = ("core", "ogc-process-description", "json", "oas30", "job-list", "dismiss")

ACCEPTED, RUNNING, SUCCESSFUL, FAILED, DISMISSED = (
    "accepted",
    "running",
    "successful",
    "failed",
    "dismissed",
)
STATUSES = (ACCEPTED, RUNNING, SUCCESSFUL, FAILED, DISMISSED)
# The reasons for which a FAILED Instance counts as dismissed: an operator or its client ended it.
NOT_WANTED = (Reason.CANCELLED, Reason.DROPPED)
# The keys of ``subscriber``: the addresses for a success, for a failure, and for the progress.
CALLBACKS = ("successUri", "failedUri", "inProgressUri")
_LONGEST_MESSAGE = 500
# The code of the main cause of an Instance whose cancel was asked for.
_CANCEL_ASKED = "cancel-asked"
# The causes whose own sentence is about the job alone, so that every client may read it.
_CAUSES_OF_JOB = frozenset(
    ("cancel-asked", "holder-lost", "holder-late", "not-due", "retry", "deferred", "alone", "ready")
)
# What a client reads of other causes if it may not see all Instances: the sentences of these causes
# name or count the work of others, and name Types, downstreams, hosts and modules.
_OTHER_CAUSES = {
    "blocks-loop": "It computes without a pause.",
    "loop-blocked": "Other work keeps it from going on.",
    "gate": "Its start is on hold.",
    "blocked": "It waits for other work to end.",
    "in-line": "It waits for earlier work of its schedule to end.",
    "misfit": "Its inputs do not fit the service at the moment. It is tried again later.",
    "max-running": "As many jobs of this process run as may run at once.",
    "max-running-per-collection": "As many of your jobs of this process run as may run at once.",
    "rate": "Jobs of this process may not start more often.",
    "downstream": "A service that it needs does not take calls at the moment.",
    "unserved": "No daemon serves it at the moment.",
    "quiet": "The daemons that serve it start no jobs at the moment.",
    "resources": "The resources that it needs are in use.",
    "workers-busy": "All workers that could run it are busy.",
    "engine-away": "The cluster that runs it does not answer now.",
    "engine-full": "The cluster that runs it has no room now.",
    "engine-lacks": "The cluster that runs it lacks what it takes.",
    "locked": "It waits for a transaction in the database.",
}
# The same for jobs that have failed: the last record names what has failed, or a daemon.
_OTHER_FAILURES = {
    Reason.UPSTREAM: "Other work that it waited for has failed.",
    Reason.STALE: "It was given up, because its attempts were lost too often.",
}


# The addresses of jobs below that of the service.
_PATHS = {
    "jobs": "jobs",
    "job": "jobs/{}",
    "results": "jobs/{}/results",
    "output": "jobs/{}/results/{}",
}


def below(base: str) -> Address:
    """Return the function that returns addresses of jobs below ``base``, for a daemon."""
    return lambda name, *args: base + _PATHS[name].format(*map(quote, map(str, args)))


def link(href: str, rel: str, type: str = JSON, title: str = "") -> Document:
    return {"href": href, "rel": rel, "type": type} | ({"title": title} if title else {})


def landing(address: Address, title: str) -> Document:
    return {
        "title": title,
        "description": "Processes that run as tasks of ATP.",
        "links": [
            link(address("landing"), "self"),
            link(address("api"), "service-desc", OPENAPI),
            link(address("api"), "service-doc", OPENAPI),
            link(address("conformance"), "conformance"),
            link(address("conformance"), REL + "conformance"),
            link(address("processes"), REL + "processes"),
            link(address("jobs"), REL + "job-list"),
        ],
    }


def conformance() -> Document:
    """Return the conformance classes. The class for callbacks needs OGC_HOSTS."""
    classes = (*CLASSES, "callback") if settings.OGC_HOSTS else CLASSES
    return {"conformsTo": [CONFORMANCE + name for name in classes]}


# Processes


def summary(task_type: Declaration, address: Address) -> Document:
    """Return the entry of a process in the list of processes."""
    offer, identifier = offer_of(task_type), task_type.identifier
    description = task_type.handler.__doc__ or ""
    options = ["async-execute", "dismiss"] + ["sync-execute"] * offer.sync
    return {
        "id": identifier,
        "version": offer.version,
        "title": offer.title or identifier,
        "description": " ".join(description.strip().partition("\n\n")[0].split()),
        "keywords": list(offer.keywords),
        "jobControlOptions": options,
        "outputTransmission": ["value", "reference"],
        "links": [
            link(address("process", identifier), "self"),
            link(address("execution", identifier), REL + "execute"),
        ],
    }


def description(task_type: Declaration, address: Address) -> Document:
    inputs = {
        each.name: {
            "title": each.schema.get("title", each.name),
            "description": each.description,
            "schema": each.schema,
            "minOccurs": int(each.is_required),
            "maxOccurs": 1,
        }
        for each in inputs_of(task_type)
    }
    files = offer_of(task_type).outputs
    outputs = {
        name: {
            "title": getattr(files.get(name), "title", "") or schema.get("title", name),
            "schema": schema,
        }
        for name, schema in outputs_of(task_type).items()
    }
    return summary(task_type, address) | {"inputs": inputs, "outputs": outputs}


# Jobs


def causes_of(jobs: Sequence[Instance], *, in_full: bool = False) -> dict[int, MainCause]:
    """Return the main cause that delays each live job, by primary key, and read the jobs again.

    If a job ends meanwhile, it has no cause, and its row says so. The sentences name and count
    other work only if ``in_full`` is True.
    """
    live = [job for job in jobs if not job.is_terminal]
    causes = main_causes(live, overview.now(), errors=False, daemons=False)
    Instance.objects.using(settings.DATABASE).reload(live)
    causes = {job.pk: causes[job.pk] for job in live if job.pk in causes and not job.is_terminal}
    return causes if in_full else {key: _of_job_alone(cause) for key, cause in causes.items()}


def _of_job_alone(cause: MainCause) -> MainCause:
    """Return a cause with a sentence that names nothing but the job."""
    if cause.code in _CAUSES_OF_JOB:
        return cause
    return replace(cause, sentence=_OTHER_CAUSES.get(cause.code, "It waits for its turn."))


def last_transition(instance: Instance) -> LogRecord | None:
    """Return the record of the last transition of a job: that of its end, if it has ended."""
    return LogRecord.objects.using(settings.DATABASE).of_instance(instance).transitions().last()


def status_of(instance: Instance, cause: MainCause | None = None) -> str:
    """Return the status of a job. ``cause`` is the main cause that delays it, if it has not ended.

    A job counts as dismissed as soon as somebody has asked to cancel it.
    """
    if instance.state == State.FINISHED:
        return SUCCESSFUL
    if instance.state == State.FAILED:
        return DISMISSED if instance.reason in NOT_WANTED else FAILED
    if cause is not None and cause.code == _CANCEL_ASKED:
        return DISMISSED
    return RUNNING if instance.is_under_way else ACCEPTED


def with_status(rows: Any, statuses: Iterable[str]) -> Any:
    """Select the jobs that have one of these statuses."""
    wanted, live = set(statuses), set()
    if ACCEPTED in wanted:
        live |= {State.ACCEPTED, State.SCHEDULED}
    if RUNNING in wanted:
        live |= {State.RUNNING, State.PAUSED}
    ended = Q(pk__in=[])
    if SUCCESSFUL in wanted:
        ended |= Q(finished__isnull=False, reason="")
    if FAILED in wanted:
        ended |= Q(finished__isnull=False, reason__gt="") & ~Q(reason__in=NOT_WANTED)
    if DISMISSED in wanted:
        ended |= Q(finished__isnull=False, reason__in=NOT_WANTED)
    if not wanted - {ACCEPTED, RUNNING}:
        # Few Instances are live, and the queue has them.
        tasks = Task.objects.using(settings.DATABASE)
        return rows.filter(pk__in=tasks.values("pk"), state__in=live)
    return rows.searched(ended | Q(finished=None, state__in=live))


def status_info(
    instance: Instance,
    address: Address,
    cause: MainCause | None = None,
    last: LogRecord | None = None,
    *,
    in_full: bool = False,
) -> Document:
    """Return the statusInfo of a job.

    ``cause`` is the main cause that delays a live Instance, and ``last`` the record of the last
    transition of one that has ended. The message names other work and daemons only if ``in_full``
    is True. The document leaves out what is None.
    """
    status, job = status_of(instance, cause), str(instance.uuid)
    if not in_full and instance.reason in _OTHER_FAILURES:
        message = _OTHER_FAILURES[Reason(instance.reason)]
    else:
        message = _message(instance, status, cause, last)
    document: Document = {
        "type": "process",
        "processingEntityType": "ogc-api-processes",
        "jobID": job,
        "id": job,
        "processID": instance.type.identifier,
        "status": status,
        "message": message,
        "progress": _progress(instance),
    }
    updated = instance.finished or instance.started or instance.created
    times = {
        "created": instance.created,
        "started": instance.started,
        "finished": instance.finished,
        "updated": updated,
    }
    document |= {name: _moment(time) for name, time in times.items() if time is not None}
    if status == FAILED:
        type = f"urn:atp:problem:{instance.reason.lower()}"
        document["exception"] = {"type": type, "title": message, "status": 500}
    document["links"] = [
        link(address("job", job), "self"),
        link(address("job", job), "monitor"),
        link(address("jobs"), REL + "job-list"),
    ]
    if status == SUCCESSFUL:
        document["links"].append(link(address("results", job), REL + "results"))
    return document


def _message(
    instance: Instance, status: str, cause: MainCause | None, last: LogRecord | None
) -> str:
    if status == RUNNING and instance.progress_message:
        return instance.progress_message
    if cause is not None:
        return cause.sentence
    if last is not None and status == DISMISSED and last.who:
        return f"It was dismissed by {last.who}."
    if last is not None and status != SUCCESSFUL:
        return shorten(headline(last.message), _LONGEST_MESSAGE)
    return instance.progress_message or f"It is {status}."


def _progress(instance: Instance) -> int:
    """Return the progress in percent; only a job that has finished reaches 100."""
    if instance.state == State.FINISHED:
        return 100
    return min(99, math.floor(100 * (instance.progress or 0.0)))


def _moment(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def page(name: str, items: Iterable[Document], own: str, following: str | None) -> Document:
    """Return a page of a list, with links to itself and to the next."""
    links = [link(own, "self")] + ([link(following, "next")] if following else [])
    return {name: list(items), "links": links}

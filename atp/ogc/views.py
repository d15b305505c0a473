"""The views of OGC API – Processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings as project
from django.db import connections
from django.db.models import F, Q
from django.http import HttpResponse, HttpResponseBase, QueryDict
from django.utils.dateparse import parse_datetime
from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response

from .. import contracts, outside, queue
from ..api import enqueueing
from ..api.base import View, is_uuid
from ..api.problems import AnyAccept, problem_with_errors
from ..api.schema import DEFAULT_LIMIT, LARGEST_LIMIT, LONGEST_WAIT
from ..api.waiting import close_connections, limited_reads, waiting_response
from ..conf import settings
from ..contracts.plain import to_stored
from ..exceptions import CorruptData, IllegalTransition, UnknownInstance
from ..models import Instance, LogRecord, Task, Type
from ..operations.registry import Declaration
from ..payload import references
from ..payload.json import from_plain
from ..reports import overview, paging
from ..states import NOT_RUNNING, State
from ..text import did_you_mean
from ..web import raw
from ..web.permissions import (
    DELETE,
    OPERATE,
    VIEW_INSTANCE,
    VIEW_RESPONSE,
    actor,
    narrow_rows,
)
from ..web.problems import Problem
from . import access, documents, openapi, problems, results
from .documents import DISMISSED, NOT_WANTED, OPENAPI, STATUSES, SUCCESSFUL
from .processes import find, inputs_of, offer_of, offered, outputs_of

CHANNEL = "OGC"
_INVALID = Problem(status=400, name="invalid-parameter", title="A parameter is not possible")
_BODY = Problem(status=400, name="invalid-inputs", title="The inputs do not fit")
_SUBSCRIBER = Problem(status=400, name="invalid-subscriber", title="It cannot be called back")
_ORDER = ("-id",)


class OGCView(View):
    """The base class: absolute addresses, and the errors of the standard.

    Who may do what is not a matter of Django's permissions alone; see :mod:`atp.ogc.access`.
    """

    schema = None
    permission_classes = ()

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response]:
        return problems.response_of

    def find_process(self, identifier: str) -> Declaration:
        task_type = find(identifier)
        if task_type is None:
            known = [each.identifier for each in offered()]
            raise problems.no_such_process(identifier, did_you_mean(identifier, known))
        return task_type


class LandingView(OGCView):
    def get(self, request: Request) -> Response:
        name = getattr(project, "SITE_NAME", "") or request.get_host()
        return Response(documents.landing(self.url, f"Processes of {name}"))


class ConformanceView(OGCView):
    def get(self, request: Request) -> Response:
        return Response(documents.conformance())


class OpenAPIView(OGCView):
    content_negotiation_class = AnyAccept

    def get(self, request: Request) -> Response:
        document = openapi.document(self.url("landing").rstrip("/"))
        return Response(document, content_type=OPENAPI)


class ProcessesView(OGCView):
    def get(self, request: Request) -> Response:
        limit, after = _page_of(request.query_params)
        listed = [each for each in offered() if each.identifier > (after or "")]
        shown = [documents.summary(each, self.url) for each in listed[:limit]]
        following = None
        if len(listed) > limit:
            following = _with(request, after=listed[limit - 1].identifier)
        own = request.build_absolute_uri()
        return Response(documents.page("processes", shown, own, following))


class ProcessView(OGCView):
    def get(self, request: Request, identifier: str) -> Response:
        return Response(documents.description(self.find_process(identifier), self.url))


# Execution


class ExecutionView(OGCView):
    def post(self, request: Request, identifier: str) -> HttpResponse:
        task_type = self.find_process(identifier)
        lane = access.lane(request)
        body = request.data
        if not isinstance(body, dict):
            raise ParseError("The body must be an object with the inputs.")
        wanted, enqueue = _wanted(task_type, body), queue.enqueue_calls
        if body.get("subscriber") is not None:
            enqueue = _with_callbacks(body["subscriber"], self.url("landing"))
        call = _call(task_type, body.get("inputs", {}), lane, actor(request, CHANNEL))
        [instance] = enqueueing.enqueue_checked([call], enqueue)
        instance.type = Type.objects.using(settings.DATABASE).get(pk=instance.type_id)
        seconds, preference = _seconds_to_wait(request, offer_of(task_type).sync)
        if seconds and not connections[settings.DATABASE].in_atomic_block:

            def answer() -> HttpResponse:
                return self._answer_after_wait(instance, task_type, wanted, preference)

            waiting = waiting_response(request._request, instance, seconds, answer)
            if waiting is not None:
                close_connections()
                return waiting
        return self._created(instance)

    def _created(self, instance: Instance) -> Response:
        job = self.url("job", str(instance.uuid))
        headers = {"Location": job, "Link": f"<{job}>; rel=monitor"}
        headers["Preference-Applied"] = "respond-async"
        return Response(_status(self, instance), status=201, headers=headers)

    def _answer_after_wait(
        self, instance: Instance, task_type: Declaration, wanted: _Wanted, preference: str
    ) -> HttpResponse:
        """Return the rendered response after the wait: the results, an error, or the job."""
        with limited_reads():
            try:
                found = queue.get(instance.uuid)
                if not found.is_terminal:
                    response: Any = self._created(found)
                else:
                    response = _results(self, found, task_type, wanted)
                    if preference:
                        response.headers["Preference-Applied"] = preference
            except Exception as error:
                response = self.handle_exception(error)
            final = self.finalize_response(self.request, response)
            return final.render() if hasattr(final, "render") else final


def _with_callbacks(subscriber: Any, base: str) -> Any:
    """Return the function that enqueues a job with its callbacks. Raises ProblemError."""
    if not settings.OGC_HOSTS:
        error = ("subscriber", "This service calls nobody back.")
        raise problem_with_errors(_SUBSCRIBER, [error])
    from . import callbacks  # it declares Types, which daemons have only with the setting

    errors = callbacks.problems_of(subscriber)
    if errors:
        raise problem_with_errors(_SUBSCRIBER, errors)
    return partial(callbacks.enqueue, subscriber, base)


def _call(task_type: Declaration, inputs: Any, lane: str, by: str) -> queue.Call:
    """Return the call that runs a process with a client's inputs. Raises ProblemError."""
    if not isinstance(inputs, dict):
        raise problem_with_errors(_BODY, [("inputs", "The inputs must be an object.")])
    known = {each.name: each for each in inputs_of(task_type)}
    contract = contracts.schema_of(task_type)
    defs = {} if contract is None else contract.defs
    arguments, errors = {}, []
    for name, given in inputs.items():
        schema = known[name].stored if name in known else {}
        try:
            value = _plain(given, is_list=_is_list(known.get(name)))
            arguments[name] = from_plain(to_stored(value, schema, defs))
        except (ValueError, CorruptData) as error:
            errors.append((f"inputs.{name}", str(error)))
    if errors:
        raise problem_with_errors(_BODY, errors)
    declared = task_type.using(created_by=by, collection=lane)  # type: ignore[attr-defined]
    return queue.Call(task_type=declared, args=(), kwargs=arguments)


def _is_list(known: Any) -> bool:
    return known is not None and known.schema.get("type") == "array"


def _plain(given: Any, *, is_list: bool = False) -> Any:
    """Return the value in an input, which may be qualified, or a reference. Raises ValueError."""
    if isinstance(given, list) and is_list:
        return [_plain(each) for each in given]
    if not isinstance(given, dict):
        return given
    if "value" in given:
        return given["value"]
    if "href" in given:
        return references.encode(_reference(given))
    if is_list and isinstance(given.get("bbox"), list):
        return given["bbox"]
    return given


def _reference(given: dict[str, Any]) -> references.Reference:
    """Return the reference in an input, which a worker will fetch. Raises ValueError."""
    if not settings.OGC_HOSTS:
        raise ValueError("Inputs by reference are not accepted here: send the value.")
    address = str(given["href"])
    try:
        outside.check(address)
    except outside.Refused as error:
        raise ValueError(str(error)) from None
    return references.Reference(address, str(given.get("type") or ""))


class _Wanted:
    """Which outputs a client wants, and whether raw."""

    def __init__(self, names: Sequence[str] | None, *, is_raw: bool) -> None:
        self.names = names
        self.is_raw = is_raw

    def chosen(self, found: dict[str, results.Output]) -> list[results.Output]:
        """Return the outputs that are wanted. Raises ProblemError if the job lacks one."""
        for name in self.names or ():
            if name not in found:
                raise problems.no_such_output(name, did_you_mean(name, found))
        return list(found.values()) if not self.names else [found[name] for name in self.names]


def _wanted(task_type: Declaration, body: dict[str, Any]) -> _Wanted:
    """Return what a client wants. Raises ProblemError if the process has no such output."""
    outputs = body.get("outputs")
    names = list(outputs) if isinstance(outputs, dict) else None
    known = outputs_of(task_type)
    errors = [
        (f"outputs.{name}", f"There is no output {name!r}.{did_you_mean(name, known)}")
        for name in names or ()
        if name not in known
    ]
    if errors:
        raise problem_with_errors(_BODY, errors)
    return _Wanted(names, is_raw=body.get("response") == "raw")


def _seconds_to_wait(request: Request, is_sync: bool) -> tuple[float, str]:
    """Return how long to wait for the result, and the preference of the client that is met so."""
    wishes = {}
    for wish in request.headers.get("Prefer", "").replace(";", ",").split(","):
        name, _, value = wish.strip().partition("=")
        wishes[name.lower()] = value.strip()
    if "respond-async" in wishes and "wait" not in wishes:
        return 0.0, ""
    if wishes.get("wait", "").isdecimal():
        seconds = min(int(wishes["wait"]), LONGEST_WAIT)
        return seconds, f"wait={seconds}"
    return (LONGEST_WAIT if is_sync else 0.0), ""


# Jobs


class JobsView(OGCView):
    def get(self, request: Request) -> Response:
        query = _JobsQuery(request.query_params)
        rows = query.select(visible_jobs(request))
        page = paging.page(
            rows.select_related("type").order_by(*_ORDER), _ORDER, size=query.limit, key=query.after
        )
        causes = documents.causes_of(page.rows)
        jobs = [documents.status_info(row, self.url, causes.get(row.pk)) for row in page.rows]
        following = None if page.next is None else _with(request, after=page.next)
        return Response(documents.page("jobs", jobs, request.build_absolute_uri(), following))


def visible_jobs(request: Request) -> Any:
    """Return the jobs that a client may see: those of his lane; all, for an operator."""
    rows = Instance.objects.using(settings.DATABASE)
    identifiers = [each.identifier for each in offered()]
    types = Type.objects.using(settings.DATABASE).filter(identifier__in=identifiers)
    keys = list(types.values_list("pk", flat=True))
    if access.sees_all(request.user):
        visible: Any = narrow_rows(request.user, VIEW_INSTANCE, rows)
        return visible.searched(Q(type__in=keys))
    lane = access.lane(request)
    return rows.filter(collection=lane, collection__gt="", type__in=keys)


class _JobsQuery:
    """The parameters of the list of jobs. Raises ProblemError, with all that is wrong with them."""

    def __init__(self, params: QueryDict) -> None:
        self._errors: list[tuple[str, str]] = []
        known = ("type", "processID", "status", "datetime", "minDuration", "maxDuration")
        for name in params:
            if name not in (*known, "limit", "after", "f"):
                text = f"There is no parameter {name!r}.{did_you_mean(name, known)}"
                self._errors.append((name, text))
        self.types = _words(params, "type")
        self.processes = _words(params, "processID")
        self.statuses = _words(params, "status")
        for status in self.statuses:
            if status not in STATUSES:
                text = f"{status!r} must be one of: {', '.join(STATUSES)}."
                self._errors.append(("status", text + did_you_mean(status, STATUSES)))
        self.after_time, self.before_time = self._interval(params.get("datetime"))
        self.shortest = self._seconds(params, "minDuration")
        self.longest = self._seconds(params, "maxDuration")
        self.limit, self.after = _page_of(params)
        if self._errors:
            raise problem_with_errors(_INVALID, self._errors)

    def select(self, rows: Any) -> Any:
        if self.types and "process" not in self.types:
            return rows.none()
        if self.processes:
            types = Type.objects.using(settings.DATABASE).filter(identifier__in=self.processes)
            rows = rows.filter(type__in=list(types.values_list("pk", flat=True)))
        if self.statuses and set(self.statuses) != set(STATUSES):
            rows = self._with_status(rows)
        if self.after_time or self.before_time:
            rows = rows.filter(rows.created_between(self.after_time, self.before_time))
        for seconds, compared in ((self.shortest, "gte"), (self.longest, "lte")):
            if seconds is not None:
                ran = Q(started__isnull=False) & ~Q(reason__in=NOT_RUNNING)
                ended = Q(**{f"finished__{compared}": F("started") + seconds})
                since = overview.now() - seconds
                lives = Q(
                    finished=None, **{f"started__{'lte' if compared == 'gte' else 'gte'}": since}
                )
                rows = rows.searched(ran & (ended | lives))
        return rows

    def _with_status(self, rows: Any) -> Any:
        wanted, live = set(self.statuses), set()
        if documents.ACCEPTED in wanted:
            live |= {State.ACCEPTED, State.SCHEDULED}
        if documents.RUNNING in wanted:
            live |= {State.RUNNING, State.PAUSED}
        ended = Q(pk__in=[])
        if SUCCESSFUL in wanted:
            ended |= Q(finished__isnull=False, reason="")
        if documents.FAILED in wanted:
            ended |= Q(finished__isnull=False, reason__gt="") & ~Q(reason__in=NOT_WANTED)
        if DISMISSED in wanted:
            ended |= Q(finished__isnull=False, reason__in=NOT_WANTED)
        if not wanted - {documents.ACCEPTED, documents.RUNNING}:
            # Few Instances are live, and the queue has them.
            tasks = Task.objects.using(settings.DATABASE)
            return rows.filter(pk__in=tasks.values("pk"), state__in=live)
        return rows.searched(ended | Q(finished=None, state__in=live))

    def _interval(self, text: str | None) -> tuple[datetime | None, datetime | None]:
        if not text:
            return None, None
        first, slash, last = text.partition("/")
        times = [self._time(each) for each in (first, last if slash else first)]
        if None not in times and times[0] > times[1]:  # type: ignore[operator]
            self._errors.append(("datetime", "The interval ends before it begins."))
        return times[0], times[1]

    def _time(self, text: str) -> datetime | None:
        if text in ("", ".."):
            return None
        try:
            time = parse_datetime(text)
        except ValueError:
            time = None
        if time is None:
            self._errors.append(("datetime", f"{text!r} is no time such as 2030-01-31T18:00:00Z."))
            return None
        return time if time.tzinfo else time.replace(tzinfo=UTC)

    def _seconds(self, params: QueryDict, name: str) -> timedelta | None:
        text = params.get(name)
        if text is None:
            return None
        if not text.isdecimal() or len(text) > 9:
            self._errors.append((name, f"{text!r} is no number of seconds."))
            return None
        return timedelta(seconds=int(text))


class JobView(OGCView):
    def get(self, request: Request, job: str) -> Response:
        return Response(_status(self, find_job(request, job)))

    def delete(self, request: Request, job: str) -> Response:
        """Cancel a job that has not ended; remove one that has."""
        instance = find_job(request, job)
        access.require(request, instance, DELETE if instance.is_terminal else OPERATE)
        by = actor(request, CHANNEL)
        if instance.is_terminal:
            document = _status(self, instance)
            queue.delete(instance, by=by)
            return Response(document | {"status": DISMISSED})
        with suppress(IllegalTransition):  # it has just ended, or is being cancelled already
            queue.cancel(instance, by=by)
        return Response(_status(self, queue.get(instance.uuid)))


class ResultsView(OGCView):
    def get(self, request: Request, job: str) -> HttpResponseBase:
        instance = find_job(request, job)
        access.require(request, instance, VIEW_RESPONSE)
        names = _words(request.query_params, "outputs")
        task_type = self.find_process(instance.type.identifier)
        return _results(self, instance, task_type, _Wanted(names or None, is_raw=False))


class OutputView(OGCView):
    content_negotiation_class = AnyAccept

    def get(self, request: Request, job: str, output: str) -> HttpResponseBase:
        instance = find_job(request, job)
        access.require(request, instance, VIEW_RESPONSE)
        task_type = self.find_process(instance.type.identifier)
        return _results(self, instance, task_type, _Wanted([output], is_raw=True))


def find_job(request: Request, job: str) -> Instance:
    """Return the Instance of a job that the client may see. Raises ProblemError."""
    missing = problems.no_such_job(job)
    if not is_uuid(job):
        raise missing
    try:
        instance = queue.get(job)
    except UnknownInstance:
        raise missing from None
    if find(instance.type.identifier) is None:
        raise missing
    if not access.may_see(request, instance):
        raise missing
    return instance


def _status(view: OGCView, instance: Instance) -> dict[str, Any]:
    causes = documents.causes_of([instance])
    log = LogRecord.objects.using(settings.DATABASE).of_instance(instance)
    last = log.last() if instance.is_terminal else None
    return documents.status_info(instance, view.url, causes.get(instance.pk), last)


def _results(
    view: OGCView, instance: Instance, task_type: Declaration, wanted: _Wanted
) -> HttpResponseBase:
    """Return the response with the results of a job. Raises ProblemError if it has none."""
    status = documents.status_of(instance)
    if status == documents.FAILED:
        said = _status(view, instance)
        raise problems.job_failed(instance.reason.lower(), said["message"])
    if status == DISMISSED:
        raise problems.job_dismissed()
    if status != SUCCESSFUL:
        raise problems.not_ready(status)
    response = queue.response(instance)
    chosen = wanted.chosen(results.outputs(task_type, response))
    if not wanted.is_raw or len(chosen) != 1:
        return Response(results.document(instance, chosen, view.url))
    [output] = chosen
    if output.number is not None:
        return raw.response_with_file(response, output.number)
    if not output.has_value:
        return raw.response_with_body(response, f"{output.name}-{instance.uuid}")
    if isinstance(output.value, str):
        return HttpResponse(output.value, content_type="text/plain; charset=utf-8")
    return Response(output.value)


# Parameters


def _words(params: QueryDict, name: str) -> list[str]:
    """Return the words of a parameter that may be repeated, or have several joined by commas."""
    return [word for text in params.getlist(name) for word in text.split(",") if word]


def _page_of(params: QueryDict) -> tuple[int, str | None]:
    """Return how many items a page has, and after which it begins. Raises ProblemError."""
    text = params.get("limit")
    if text is None:
        return DEFAULT_LIMIT, params.get("after")
    if not text.isdecimal() or int(text) < 1:
        error = ("limit", f"{text!r} is no number from 1 on.")
        raise problem_with_errors(_INVALID, [error])
    return min(int(text), LARGEST_LIMIT), params.get("after")


def _with(request: Request, **changed: str) -> str:
    """Return the address of a request with changed parameters."""
    params = request.query_params.copy()
    for name, value in changed.items():
        params[name] = value
    return request.build_absolute_uri(f"{request.path}?{params.urlencode()}")

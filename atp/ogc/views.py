"""The views of OGC API – Processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from django.conf import settings as project
from django.db import connections
from django.http import HttpResponse, HttpResponseBase
from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response

from .. import contracts, outside, queue
from ..api import enqueueing
from ..api.base import View, is_uuid
from ..api.problems import AnyAccept, Negotiation, ProblemError, problem_with_errors
from ..api.schema import LONGEST_WAIT
from ..api.waiting import close_connections, limited_reads, waiting_response
from ..conf import settings
from ..contracts.plain import to_stored
from ..exceptions import CorruptData, IllegalTransition, QueueFull, UnknownInstance
from ..models import Instance, Type
from ..operations.registry import Declaration
from ..payload import references
from ..payload.json import from_plain
from ..reports import paging
from ..text import did_you_mean
from ..web import raw
from ..web.permissions import (
    DELETE,
    OPERATE,
    VIEW_RESPONSE,
    actor,
)
from ..web.problems import Problem
from . import access, documents, openapi, problems, results
from .documents import DISMISSED, OPENAPI, SUCCESSFUL
from .parameters import JobsQuery, page_of, whole_number, words
from .processes import find, inputs_of, offer_of, offered, outputs_of

CHANNEL = "OGC"
_BODY = Problem(status=400, name="invalid-inputs", title="The inputs do not fit")
_SUBSCRIBER = Problem(
    status=400, name="invalid-subscriber", title="The client cannot be called back"
)
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
        limit, after = page_of(request.query_params)
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


class _UntypedBodies(Negotiation):
    """A negotiation that takes a body without a content type as JSON, as some clients send it."""

    def select_parser(self, request: Request, parsers: Sequence[Any]) -> Any:
        kind = request.content_type.partition(";")[0].strip().lower()
        # Python's WSGI server puts text/plain there.
        is_untyped = kind in ("", "text/plain")
        return parsers[0] if is_untyped else super().select_parser(request, parsers)


class ExecutionView(OGCView):
    content_negotiation_class = _UntypedBodies

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
        with wanted.saved():
            [instance] = self._enqueue(call, enqueue)
        instance.type = Type.objects.using(settings.DATABASE).get(pk=instance.type_id)
        seconds, preference = _seconds_to_wait(request, is_sync=offer_of(task_type).sync)
        if seconds and not connections[settings.DATABASE].in_atomic_block:

            def answer() -> HttpResponse:
                return self._answer_after_wait(instance, task_type, wanted, preference)

            waiting = waiting_response(request._request, instance, seconds, answer)
            if waiting is not None:
                close_connections()
                return waiting
        return self._created(instance)

    def _enqueue(self, call: queue.Call, enqueue: Any) -> list[Instance]:
        try:
            return enqueueing.enqueue_checked([call], enqueue)
        except ProblemError as error:
            is_full = isinstance(error.__cause__, QueueFull)
            if not is_full or access.sees_everything(self.request.user):
                raise
            # The sentence of the queue says how many jobs of all clients wait.
            detail = "Too many jobs of this process wait already. Try again later."
            raise ProblemError(replace(error.problem, detail=detail)) from error.__cause__

    def _created(self, instance: Instance) -> Response:
        job = self.url("job", str(instance.uuid))
        headers = {"Location": job, "Link": f"<{job}>; rel=monitor"}
        headers["Preference-Applied"] = "respond-async"
        return Response(_status(self, instance), status=201, headers=headers)

    def _answer_after_wait(
        self, instance: Instance, task_type: Declaration, wanted: results.Wanted, preference: str
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
        error = ("subscriber", "This service does not call clients back.")
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


def _wanted(task_type: Declaration, body: dict[str, Any]) -> results.Wanted:
    """Return what a client wants. Raises ProblemError if the process has no such output."""
    asked = body.get("outputs") or {}
    if not isinstance(asked, dict):
        text = "It must be an object with the names of outputs."
        raise problem_with_errors(_BODY, [("outputs", text)])
    known, errors = outputs_of(task_type), []
    references = []
    for name, wish in asked.items():
        mode = wish.get("transmissionMode") if isinstance(wish, dict) else None
        if name not in known:
            errors.append(
                (f"outputs.{name}", f"There is no output {name!r}.{did_you_mean(name, known)}")
            )
        elif mode == results.REFERENCE:
            references.append(name)
        elif mode == results.VALUE and name in offer_of(task_type).outputs:
            text = "It is a file, which the results link to: ask for it by reference."
            errors.append((f"outputs.{name}.transmissionMode", text))
    if errors:
        raise problem_with_errors(_BODY, errors)
    is_raw = body.get("response") == "raw"
    return results.Wanted(tuple(asked), tuple(references), is_raw)


def _seconds_to_wait(request: Request, *, is_sync: bool) -> tuple[float, str]:
    """Return how long to wait for the result, and the client's preference that this meets."""
    wishes = {}
    for wish in request.headers.get("Prefer", "").replace(";", ",").split(","):
        name, _, value = wish.strip().partition("=")
        wishes[name.lower()] = value.strip()
    if "respond-async" in wishes and "wait" not in wishes:
        return 0.0, ""
    number = whole_number(wishes.get("wait", ""))
    if number is not None:
        seconds = min(number, LONGEST_WAIT)
        return seconds, f"wait={seconds}"
    return (LONGEST_WAIT if is_sync else 0.0), ""


# Jobs


class JobsView(OGCView):
    def get(self, request: Request) -> Response:
        query = JobsQuery(request.query_params)
        types = Type.objects.using(settings.DATABASE)
        own = types.filter(identifier__in=[each.identifier for each in offered()])
        keys = list(own.values_list("pk", flat=True))
        rows = query.select(access.visible_jobs(request, keys))
        page = paging.page(
            rows.select_related("type").order_by(*_ORDER), _ORDER, size=query.limit, key=query.after
        )
        in_full = access.sees_everything(request.user)
        causes = documents.causes_of(page.rows, in_full=in_full)
        jobs = [
            documents.status_info(row, self.url, causes.get(row.pk), in_full=in_full)
            for row in page.rows
        ]
        following = None if page.next is None else _with(request, after=page.next)
        return Response(documents.page("jobs", jobs, request.build_absolute_uri(), following))


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
            return Response(document | {"status": DISMISSED, "message": "The job was removed."})
        with suppress(IllegalTransition):  # it has just ended, or is being cancelled already
            queue.cancel(instance, by=by)
        return Response(_status(self, queue.get(instance.uuid)))


class ResultsView(OGCView):
    def get(self, request: Request, job: str) -> HttpResponseBase:
        instance = find_job(request, job)
        access.require(request, instance, VIEW_RESPONSE)
        names = words(request.query_params, "outputs")
        task_type = self.find_process(instance.type.identifier)
        wanted = results.Wanted(tuple(names)) if names else results.wanted_of(instance)
        return _results(self, instance, task_type, wanted)


class OutputView(OGCView):
    content_negotiation_class = AnyAccept

    def get(self, request: Request, job: str, output: str) -> HttpResponseBase:
        instance = find_job(request, job)
        access.require(request, instance, VIEW_RESPONSE)
        task_type = self.find_process(instance.type.identifier)
        return _results(self, instance, task_type, results.Wanted((output,), is_raw=True))


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
    in_full = access.sees_everything(view.request.user)
    causes = documents.causes_of([instance], in_full=in_full)
    last = documents.last_transition(instance) if instance.is_terminal else None
    return documents.status_info(instance, view.url, causes.get(instance.pk), last, in_full=in_full)


def _results(
    view: OGCView, instance: Instance, task_type: Declaration, wanted: results.Wanted
) -> HttpResponseBase:
    """Return the response with the results of a job. Raises ProblemError if it has none."""
    status = documents.status_of(instance)
    if status == documents.FAILED:
        document = _status(view, instance)
        raise problems.job_failed(instance.reason.lower(), document["message"])
    if status == DISMISSED:
        raise problems.job_dismissed()
    if status != SUCCESSFUL:
        raise problems.not_ready(status)
    response = queue.response(instance)
    chosen = wanted.chosen(results.outputs(task_type, response))
    if not wanted.is_raw or len(chosen) != 1:
        return Response(results.document(instance, chosen, view.url, wanted))
    [output] = chosen
    if output.number is not None:
        return raw.response_with_file(response, output.number)
    if not output.has_value:
        return raw.response_with_body(response, f"{output.name}-{instance.uuid}")
    if isinstance(output.value, str):
        return HttpResponse(output.value, content_type="text/plain; charset=utf-8")
    return Response(output.value)


def _with(request: Request, **changed: str) -> str:
    """Return the address of a request with changed parameters."""
    params = request.query_params.copy()
    for name, value in changed.items():
        params[name] = value
    return request.build_absolute_uri(f"{request.path}?{params.urlencode()}")

"""Traces attempts with OpenTelemetry. Each attempt has a span in the trace of its enqueue.

The names of spans and attributes follow OpenTelemetry's conventions for messaging. Those are not
stable yet, so only this module uses them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .. import __version__
from ..authoring import logs
from ..authoring.logs import describe_exception
from ..authoring.steps import Asleep
from ..exceptions import Defer, Interrupted, Retry, Throttled, Unavailable, dotted_path
from ..fields import uuid7_time
from ..middleware import Carrier
from ..operations.registry import registry

# The span of an attempt that begins within this time of the enqueue is a child of the enqueue's
# span. A later attempt, or one after a failure, begins a new trace that is linked to the enqueue,
# because a trace that lasts for hours is useless.
CHILD_WITHIN = timedelta(seconds=60)
# A handler raises these to request something, so they are not errors. The first match counts.
_OUTCOMES = (
    (Asleep, "Defer"),
    *((kind, kind.__name__) for kind in (Throttled, Retry, Defer, Unavailable, Interrupted)),
)
# After an interrupted attempt its worker waits this many milliseconds for exporters, then ends.
FLUSH = 1000
# The project's propagators are not used, because they might also save baggage, which can be large.
_PROPAGATOR = TraceContextTextMapPropagator()


class TraceContext(Carrier):
    """Passes the trace of the enqueue on to the handler. List it in ``ATP["CARRIERS"]``.

    The queue stores ``traceparent``, and ``tracestate`` if the trace has one. Outside a trace the
    queue stores nothing.
    """

    name = "trace"

    def save(self) -> dict[str, str] | None:
        headers: dict[str, str] = {}
        _PROPAGATOR.inject(headers)
        return headers or None

    def restore(self, value: Any) -> AbstractContextManager[None]:
        # The propagator ignores values that it cannot parse.
        headers = {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}
        return _AttachedContext(_PROPAGATOR.extract(headers))


class _AttachedContext:
    """A context manager that makes an OpenTelemetry context the current one.

    It is not a generator, because contextlib changes the exceptions that pass through a generator,
    and some exceptions do not allow that.
    """

    def __init__(self, context: contexts.Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._token = contexts.attach(self._context)

    def __exit__(self, *raised: object) -> None:
        contexts.detach(self._token)


class Spans:
    """Middleware that creates a span for each attempt. List it in ``ATP["MIDDLEWARE"]``."""

    sync_capable = async_capable = True

    def __init__(self, run: Callable[[Any], Any]) -> None:
        self._run = run
        self._tracer = trace.get_tracer("atp", __version__)
        if iscoroutinefunction(run):
            markcoroutinefunction(self)

    def __call__(self, context: Any) -> Any:
        if iscoroutinefunction(self._run):
            return self._run_async(context)
        with self._span(context):
            return self._run(context)

    async def _run_async(self, context: Any) -> Any:
        with self._span(context):
            return await self._run(context)

    def _span(self, context: Any) -> _AttemptSpan:
        origin = trace.get_current_span().get_span_context()
        # The number of the attempt is no criterion, as it also counts claims that were handed back.
        is_again = context.retries or context.restarts
        is_child = not is_again and _age(context) <= CHILD_WITHIN
        span = self._tracer.start_span(
            f"process {context.type}",
            context=None if is_child else contexts.Context(),
            kind=SpanKind.CONSUMER,
            attributes=_attributes(context),
            links=() if is_child or not origin.is_valid else (Link(origin),),
        )
        return _AttemptSpan(span, context)


class _AttemptSpan(_AttachedContext):
    """A context manager that makes the span of an attempt the current one, and ends it."""

    def __init__(self, span: Span, context: Any) -> None:
        super().__init__(trace.set_span_in_context(span))
        self._span = span
        self._of = context

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        error = raised[1]
        is_ending = False
        if isinstance(error, BaseException):
            is_ending = logs.is_a(error, Interrupted)
            _record_error(self._span, self._of, error)
        self._span.end()
        if is_ending:
            _flush()


def _record_error(span: Span, context: Any, error: BaseException) -> None:
    """Record in an attempt's span the outcome or the error that an exception means."""
    meaning = logs.deciding_exception(error)
    outcome = next((name for kind, name in _OUTCOMES if logs.is_a(meaning, kind)), "")
    if outcome == Unavailable.__name__ and not registry.downstream(context.type):
        outcome = ""  # without a downstream it is an ordinary error
    if outcome:
        span.set_attribute("atp.outcome", outcome)
        return
    span.set_attribute("error.type", dotted_path(error))
    span.set_status(Status(StatusCode.ERROR, logs.exception_name(error)))
    with suppress(Exception):  # its text may be unreadable
        if context.secrets:
            masked = context.hidden(describe_exception(error))
            attributes = {"exception.type": dotted_path(error), "exception.stacktrace": masked}
            span.add_event("exception", attributes)
        else:
            span.record_exception(error)


def _flush() -> None:
    """Export the ended spans now, because an interrupted worker is about to end."""
    flush = getattr(trace.get_tracer_provider(), "force_flush", None)
    if flush is not None:
        with suppress(Exception):
            flush(FLUSH)


def _age(context: Any) -> timedelta:
    """Return the time since the enqueue, which compares the clocks of two hosts."""
    return datetime.now(UTC) - uuid7_time(context.uuid)


def _attributes(context: Any) -> dict[str, Any]:
    return {
        "messaging.system": "atp",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": context.type,
        "messaging.message.id": str(context.uuid),
        "atp.attempt": context.attempt,
        "atp.collection": context.collection,
        "atp.worker": context.worker,
    }

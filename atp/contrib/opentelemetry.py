"""Traces for OpenTelemetry: a span for each attempt, in the trace of whoever has enqueued.

The names of spans and attributes are those of OpenTelemetry's conventions for messaging, which are
not stable: they stand in this module only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .. import __version__
from ..authoring import logs
from ..authoring.logs import describe
from ..authoring.steps import Asleep
from ..exceptions import Defer, Interrupted, Retry, Throttled, Unavailable, path_of
from ..fields import time_of
from ..middleware import Carrier
from ..operations.registry import registry

# An attempt that begins within this time of the enqueue is a child of the span of the enqueue.
# Others begin a trace of their own, which is linked to that: nobody looks at a trace that goes on
# for hours. So do those that try again after a failure.
CHILD_WITHIN = timedelta(seconds=60)
# By these a handler speaks to ATP: they are no errors. The first that fits names the outcome.
_WORDS = (
    (Asleep, "Defer"),
    *((kind, kind.__name__) for kind in (Throttled, Retry, Defer, Unavailable, Interrupted)),
)
# How long the end of an interrupted attempt waits for exporters, in milliseconds: its worker ends.
FLUSH = 1000
# Not those of the project: baggage may be large, and is none of ATP's business.
_PROPAGATOR = TraceContextTextMapPropagator()


class TraceContext(Carrier):
    """Carries the trace of the enqueue to the handler; list it in ``ATP["CARRIERS"]``.

    The value has ``traceparent``, and ``tracestate`` if there is one. Outside of a trace nothing
    is carried.
    """

    name = "trace"

    def save(self) -> dict[str, str] | None:
        found: dict[str, str] = {}
        _PROPAGATOR.inject(found)
        return found or None

    def restore(self, value: Any) -> AbstractContextManager[None]:
        # What does not parse is no context: the propagator leaves it out.
        given = {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}
        return _Attached(_PROPAGATOR.extract(given))


class _Attached:
    """A context of OpenTelemetry, current inside the block.

    No generator: contextlib writes to the exceptions that pass one, which some do not allow.
    """

    def __init__(self, context: contexts.Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._token = contexts.attach(self._context)

    def __exit__(self, *raised: object) -> None:
        contexts.detach(self._token)


class Spans:
    """Middleware that makes a span of each attempt; list it in ``ATP["MIDDLEWARE"]``."""

    def __init__(self, run: Callable[[Any], Any]) -> None:
        self._run = run
        self._tracer = trace.get_tracer("atp", __version__)

    def __call__(self, context: Any) -> Any:
        origin = trace.get_current_span().get_span_context()
        # The number of the attempt does not tell: it also counts claims that were handed back.
        is_again = context.retries or context.restarts
        is_child = not is_again and _age(context) <= CHILD_WITHIN
        span = self._tracer.start_span(
            f"process {context.type}",
            context=None if is_child else contexts.Context(),
            kind=SpanKind.CONSUMER,
            attributes=_attributes(context),
            links=() if is_child or not origin.is_valid else (Link(origin),),
        )
        is_ending = False
        try:
            with _Attached(trace.set_span_in_context(span)):
                return self._run(context)
        except BaseException as error:
            is_ending = logs.is_a(error, Interrupted)
            _note(span, context, error)
            raise
        finally:
            span.end()
            if is_ending:
                _flush()


def _note(span: Span, context: Any, error: BaseException) -> None:
    """Note in a span how an attempt has ended that raised."""
    said = logs.spoken(error)
    word = next((name for kind, name in _WORDS if logs.is_a(said, kind)), "")
    if word == Unavailable.__name__ and not registry.downstream(context.type):
        word = ""  # an error as any other
    if word:
        span.set_attribute("atp.outcome", word)
        return
    span.set_attribute("error.type", path_of(error))
    span.set_status(Status(StatusCode.ERROR, logs.exception_name(error)))
    with suppress(Exception):  # it may have no text to give
        if context.secrets:
            told = context.hidden(describe(error))
            kind = {"exception.type": path_of(error), "exception.stacktrace": told}
            span.add_event("exception", kind)
        else:
            span.record_exception(error)


def _flush() -> None:
    """Export what has ended: after an interruption the worker ends at once."""
    flush = getattr(trace.get_tracer_provider(), "force_flush", None)
    if flush is not None:
        with suppress(Exception):
            flush(FLUSH)


def _age(context: Any) -> timedelta:
    """Return the time since the enqueue; both are times of hosts, whose clocks may differ."""
    return datetime.now(UTC) - time_of(context.uuid)


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

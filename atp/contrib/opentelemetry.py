"""Traces for OpenTelemetry: a span for each attempt, in the trace of whoever has enqueued.

The names of spans and attributes are those of OpenTelemetry's conventions for messaging, which are
not stable: they stand in this module only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from .. import __version__
from ..exceptions import Defer, Interrupted, Retry, Throttled, Unavailable
from ..middleware import Carrier
from ..words.raised import path_of
from ..words.uuids import time_of

# A first attempt that begins within this time of the enqueue is a child of the span of the
# enqueue. Others begin a trace of their own, which is linked to that: nobody looks at a trace
# that goes on for hours.
CHILD_WITHIN = timedelta(seconds=60)
# By these a handler speaks to ATP: they are no errors.
_WORDS = (Retry, Defer, Throttled, Unavailable, Interrupted)


class TraceContext(Carrier):
    """Carries the trace of the enqueue to the handler; list it in ``ATP["CARRIERS"]``.

    The value is what the propagators of OpenTelemetry write, as ``traceparent``. Outside of a
    trace nothing is carried.
    """

    name = "trace"

    def save(self) -> dict[str, str] | None:
        found: dict[str, str] = {}
        propagate.inject(found)
        return found or None

    @contextmanager
    def restore(self, value: Any) -> Iterator[None]:
        # What does not parse is no context: the propagators leave it out.
        given = {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}
        token = contexts.attach(propagate.extract(given))
        try:
            yield
        finally:
            contexts.detach(token)


class Spans:
    """Middleware that makes a span of each attempt; list it in ``ATP["MIDDLEWARE"]``."""

    def __init__(self, run: Callable[[Any], Any]) -> None:
        self._run = run
        self._tracer = trace.get_tracer("atp", __version__)

    def __call__(self, context: Any) -> Any:
        origin = trace.get_current_span().get_span_context()
        is_child = context.attempt == 1 and _age(context) <= CHILD_WITHIN
        links = () if is_child or not origin.is_valid else (Link(origin),)
        with self._tracer.start_as_current_span(
            f"process {context.type}",
            context=None if is_child else contexts.Context(),
            kind=SpanKind.CONSUMER,
            attributes=_attributes(context),
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                return self._run(context)
            except _WORDS as word:
                span.set_attribute("atp.outcome", type(word).__name__)
                raise
            except BaseException as error:
                span.record_exception(error)
                span.set_attribute("error.type", path_of(error))
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
                raise


def _age(context: Any) -> timedelta:
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

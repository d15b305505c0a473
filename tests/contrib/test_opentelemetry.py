"""Spans of attempts belong to the trace of the enqueue; tested with the SDK of OpenTelemetry."""

import json
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as contexts
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from atp import Fatal, Retry, Unavailable, task_type
from atp.contrib import opentelemetry
from atp.models import Instance, Task
from atp.operations.registry import registry
from tests.app import tasks_testing as tasks

pytestmark = pytest.mark.django_db
ROOM = "atp.contrib.opentelemetry"


@pytest.fixture
def exported(monkeypatch, settings):
    """A function that returns the ended spans in order; tracing is enabled as in a project."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    settings.ATP = settings.ATP | {
        "CARRIERS": [f"{ROOM}.TraceContext"],
        "MIDDLEWARE": [f"{ROOM}.Spans"],
    }
    return exporter.get_finished_spans


@pytest.fixture
def declare(monkeypatch):
    """A function that declares Types, which are removed after the test."""
    monkeypatch.setattr(registry, "_types", dict(registry._types))
    return lambda handler, **given: task_type(f"trace.{handler.__name__}", **given)(handler)


def request():
    """A span like that of a web request."""
    return trace.get_tracer("tests").start_as_current_span("GET /order")


def test_an_attempt_belongs_to_the_trace_of_its_enqueue(exported, atp):
    with request() as of_request:
        instance = tasks.group.enqueue(name="a")
    atp.drain()
    asked, span = exported()
    assert (span.name, span.kind) == ("process kit.group", SpanKind.CONSUMER)
    assert span.parent.span_id == of_request.get_span_context().span_id
    assert span.context.trace_id == asked.context.trace_id
    assert span.status.status_code is StatusCode.UNSET
    assert span.attributes["messaging.message.id"] == str(instance.uuid)
    assert span.attributes["messaging.destination.name"] == "kit.group"
    assert span.attributes["atp.attempt"] == 1
    # One that was handed back before its first run belongs to it, too.
    with request() as of_request:
        instance = tasks.group.enqueue(name="b")
    for rows in (Instance.objects.filter(pk=instance.pk), Task.objects.filter(pk=instance.pk)):
        rows.update(attempt=1)
    atp.drain()
    span = exported()[-1]
    assert span.attributes["atp.attempt"] == 2
    assert span.parent.span_id == of_request.get_span_context().span_id
    # A Task that a handler enqueues is a child of the span of the handler.
    with request():
        tasks.chain.enqueue(left=1)
    atp.drain()
    first, second = exported()[-2:]
    assert second.parent.span_id == first.context.span_id


def test_late_attempts_start_a_new_trace_with_a_link(exported, atp, declare, monkeypatch):
    """A trace that lasts for hours would be of little use."""

    def soon(context):
        if context.attempt == 1:
            raise Retry("busy", after=0)

    with request() as of_request:
        declare(soon, max_retries=1).enqueue()
    atp.drain()
    _, first, second = exported()
    assert first.parent.span_id == of_request.get_span_context().span_id
    assert second.parent is None
    assert second.links[0].context.span_id == of_request.get_span_context().span_id
    with request() as of_request:
        tasks.later.enqueue()
    monkeypatch.setattr(opentelemetry, "CHILD_WITHIN", timedelta(0))
    atp.drain()
    span = exported()[-1]
    assert span.parent is None
    [link] = span.links
    assert link.context.span_id == of_request.get_span_context().span_id
    assert span.context.trace_id != of_request.get_span_context().trace_id


def test_invalid_trace_contexts_are_ignored(exported, atp):
    for stored in ("no context", {"traceparent": "zz-é"}, [1], {"traceparent": 7}):
        with request():
            instance = tasks.group.enqueue(name=str(stored))
        own = Instance.objects.get(pk=instance.pk).own
        carried, given = json.dumps(instance.carried["trace"]), json.dumps(stored)
        changed = json.loads(json.dumps(own).replace(carried, given))
        assert changed != own
        Instance.objects.filter(pk=instance.pk).update(own=changed)
        [run] = atp.drain()
        assert run.state == "FINISHED"
        assert exported()[-1].parent is None


class Speechless(Fatal):
    def __str__(self):
        raise ValueError("no text")


@dataclass(frozen=True)
class Frozen(Fatal):
    why: str


@pytest.mark.parametrize("error", [Speechless, Frozen])
def test_tracing_does_not_change_how_an_attempt_ends(exported, atp, declare, error):
    """A Fatal that has no text, or is immutable, is still not retried."""

    def fails(context):
        raise error("no")

    with request():
        declare(fails, max_retries=3).enqueue()
    [run] = atp.drain(raises=False)
    assert (run.state, run.reason) == ("FAILED", "FATAL")
    assert exported()[-1].status.status_code is StatusCode.ERROR


def grouped(context):
    raise ExceptionGroup("of a TaskGroup", [Retry("busy", after=60)])


def unavailable(context):
    raise Unavailable("no such service")


def test_the_span_reports_the_outcome_of_the_attempt(exported, atp, declare, monkeypatch):
    """A requested retry is not an error; a raised error is recorded in the span.

    The span of an interrupted attempt is exported before its worker ends.
    """
    flushed = []
    provider = SimpleNamespace(force_flush=lambda milliseconds: flushed.append(len(exported())))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    tasks.sleeper.enqueue()
    atp.drain()
    assert exported()[-1].attributes["atp.outcome"] == "Defer"
    assert flushed == [1]
    declare(grouped, max_retries=1).enqueue()
    declare(unavailable).enqueue()
    tasks.refused.enqueue()
    atp.drain(raises=False)
    spans = {span.name.removeprefix("process "): span for span in exported()}
    assert spans["trace.grouped"].attributes["atp.outcome"] == "Retry"
    assert spans["trace.grouped"].status.status_code is StatusCode.UNSET
    assert not spans["trace.grouped"].events
    assert spans["trace.unavailable"].status.status_code is StatusCode.ERROR
    refused = spans["kit.refused"]
    assert refused.status.status_code is StatusCode.ERROR
    assert refused.attributes["error.type"] == "tests.app.tasks_testing.Refused"
    assert refused.events[0].attributes["exception.message"] == "no"


def test_only_the_trace_context_is_carried(exported, atp):
    """Baggage might exceed the size limit, and the caller of the service chooses its content."""
    token = contexts.attach(baggage.set_baggage("user", "a" * 5000))
    try:
        assert tasks.group.enqueue(name="a").carried == {}
        with request():
            carried = tasks.group.enqueue(name="b").carried
    finally:
        contexts.detach(token)
    assert [*carried["trace"]] == ["traceparent"]
    # What is enqueued outside of a trace begins one.
    atp.drain()
    _, outside, _ = exported()
    assert (outside.parent, list(outside.links)) == (None, [])

"""Spans of attempts, in the trace of whoever has enqueued: with OpenTelemetry's own SDK."""

import json
from datetime import timedelta

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from atp.contrib import opentelemetry
from atp.middleware.onion import _layers
from atp.models import Instance
from tests.app import tasks_testing as tasks

pytestmark = pytest.mark.django_db
ROOM = "atp.contrib.opentelemetry"


@pytest.fixture
def exported(monkeypatch, settings):
    """The spans that have ended, in order; traces are on, as a project would turn them on."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    settings.ATP = settings.ATP | {
        "CARRIERS": [f"{ROOM}.TraceContext"],
        "MIDDLEWARE": [f"{ROOM}.Spans"],
    }
    yield exporter.get_finished_spans
    _layers.cache_clear()


def request():
    """A span as of a request of a client."""
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


def test_what_a_handler_enqueues_is_below_its_span(exported, atp):
    with request():
        tasks.chain.enqueue(left=1)
    atp.drain()
    _, first, second = exported()
    assert second.parent.span_id == first.context.span_id


def test_what_is_enqueued_outside_of_a_trace_begins_one(exported, atp):
    instance = tasks.group.enqueue(name="a")
    assert instance.carried == {}
    atp.drain()
    [span] = exported()
    assert (span.parent, list(span.links)) == (None, [])


@pytest.mark.parametrize("how", ["late", "again"])
def test_what_begins_late_is_linked(exported, atp, monkeypatch, how):
    """Nobody looks at a trace that goes on for hours."""
    with request() as of_request:
        tasks.later.enqueue()
    if how == "late":
        monkeypatch.setattr(opentelemetry, "CHILD_WITHIN", timedelta(0))
    else:
        atp.drain()
        atp.later(hours=2)
    atp.drain()
    span = exported()[-1]
    assert span.parent is None
    [link] = span.links
    assert link.context.span_id == of_request.get_span_context().span_id
    assert span.context.trace_id != of_request.get_span_context().trace_id


def test_an_error_is_in_the_span(exported, atp):
    tasks.refused.enqueue()
    atp.drain(raises=False)
    [span] = exported()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "tests.app.tasks_testing.Refused"
    assert span.events[0].attributes["exception.message"] == "no"


def test_what_a_handler_asks_for_is_no_error(exported, atp):
    tasks.deferred.enqueue()
    atp.drain()
    [span] = exported()
    assert span.status.status_code is StatusCode.UNSET
    assert span.attributes["atp.outcome"] == "Defer"
    assert not span.events


@pytest.mark.parametrize("stored", ["no context", {"traceparent": "zz-é"}, [1], {"traceparent": 7}])
def test_what_does_not_parse_is_left_out(exported, atp, stored):
    with request():
        instance = tasks.group.enqueue(name="a")
    own = Instance.objects.get(pk=instance.pk).own
    carried, given = json.dumps(instance.carried["trace"]), json.dumps(stored)
    changed = json.loads(json.dumps(own).replace(carried, given))
    assert changed != own
    Instance.objects.filter(pk=instance.pk).update(own=changed)
    [run] = atp.drain()
    assert run.state == "FINISHED"
    assert exported()[-1].parent is None

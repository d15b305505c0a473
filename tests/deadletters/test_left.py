"""Instances that a bulk operation leaves unchanged are counted and never used as canaries."""

from types import SimpleNamespace

import pytest

from atp import Graph, queue
from atp.deadletters.tasks import BulkOperation, BulkRedrive
from atp.exceptions import Fatal
from atp.fields import uuid7
from atp.models import Daemon, Instance
from atp.operations.matching import selection
from atp.states import Event, Reason, State
from tests.app.tasks import echo


class Context(SimpleNamespace):
    """The context of an attempt that keeps no steps."""

    attempt = 2

    def __init__(self):
        super().__init__(uuid=uuid7(), lines=[], check=lambda: None, progress=lambda *_: None)
        self.log, self.step = self.lines.append, lambda name, call: call()


def fail_one(world, host):
    [case] = host.claim()
    now = world.store.now()
    host.move(case, Event.FAIL, started=now, time=now, reason=Reason.FATAL, message="no")


@pytest.fixture
def pair(world):
    """The second of two nodes, which both FAILED because the first one did."""
    with Graph("pair") as graph:
        first = graph.add(echo, number=1)
        graph.add(echo, number=2, after=first)
    fail_one(world, world.host("tests.echo"))
    world.store.graph_ends.fail_dependants()
    return Instance.objects.get(state=State.FAILED, reason=Reason.UPSTREAM)


def test_bulk_redrive_skips_a_node_whose_upstream_has_failed(pair):
    """If no canary could be redriven, the operation fails.

    If the attempt was killed, the next one finds its canaries and waits for their ends.
    """
    chosen = selection("redrive", reason="UPSTREAM")
    done = BulkOperation(Context(), chosen, 1, None, "ops").run()
    assert done == {"done": 0, "left": {"it has changed, or a node before it is FAILED": 1}}
    with pytest.raises(Fatal, match="none of 1 canaries could be redriven"):
        BulkRedrive(Context(), chosen, 1, None, "ops", 1, 0.95).run()
    first = Instance.objects.exclude(pk=pair.pk).get()
    chosen = selection("redrive", type="tests.echo", until=None)
    attempt = BulkRedrive(Context(), chosen, 1, None, "ops", 1, 0.95)
    assert attempt._redriven([first.pk]) == [first.pk]
    assert attempt._redriven([first.pk]) == [first.pk]
    assert attempt.context.lines == ["canary: 1 redriven"]


def test_delete_reports_instances_whose_files_cannot_be_removed(world, host, monkeypatch):
    echo.enqueue()
    fail_one(world, host)
    chosen = selection("delete", type="tests.echo")
    monkeypatch.setattr(type(world.store.removal), "purge", lambda store, **_: 0)
    done = BulkOperation(Context(), chosen, 1, None, "ops").run()
    told = "it is locked by somebody, or its files cannot be removed"
    assert done == {"done": 0, "left": {told: 1}}
    assert queue.get(Instance.objects.get().uuid).state == State.FAILED


def test_instances_that_others_deleted_do_not_count_as_done(world, host):
    """The attempt number does not show an earlier run, since handed back claims raise it too."""
    for instance in echo.enqueue_many([{}] * 3):
        queue.cancel(instance)
    chosen = selection("redrive", reason="CANCELLED")
    context = Context()

    def step(name, call):
        """Delete one Instance while the step is recorded."""
        found = call()
        queue.delete(chosen.rows().first())
        return found

    context.step = step
    assert BulkOperation(context, chosen, 3, None, "ops").run()["done"] == 2


def test_an_interrupted_bulk_operation_that_goes_on_counts_each_instance_once(world):
    """Instances that cannot be redriven stay in the selection."""
    queue.register(echo)
    host = world.host("tests.echo", "store.one")
    echo.enqueue_many([{}] * 10)
    world.enqueue(5)
    for case in host.claim():
        host.move(case, Event.START)
        host.move(case, Event.FAIL, reason=Reason.ERROR, message="ValueError: no")
    Daemon.objects.update(types=["tests.echo"])
    chosen, kept = selection("redrive", all=True), {}

    def step(name, call):
        if name not in kept:
            kept[name] = call()
        return kept[name]

    def again():
        context = Context()
        context.step = step
        return BulkOperation(context, chosen, 10, None, "ops")

    again().do(list(chosen.rows().filter(type__identifier="tests.echo").order_by("pk")[:4]))
    assert again().run() == {"done": 10, "left": {"no handler": 5}}

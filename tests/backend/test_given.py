"""A task of django.tasks can be used in place of a Type: in a schedule, a graph or a chain."""

from datetime import timedelta

import pytest
from django.utils import timezone

from atp import Graph, queue, result, schedule
from atp.exceptions import InvalidSchedule
from atp.models import Schedule
from atp.schedules import declaring
from tests.app.tasks import echo

from . import tasks

pytestmark = pytest.mark.django_db


@pytest.fixture
def specs(monkeypatch):
    monkeypatch.setattr(
        declaring.declared_schedules, "_specs", dict(declaring.declared_schedules._specs)
    )


def test_a_schedule_accepts_a_django_task(specs, atp):
    """The schedule takes the queue and the priority of ``using()``, and rejects other options."""
    schedule("letters", tasks.send, every=3600, inputs={"user": "ann", "subject": "hello"})
    queue.register_all()
    row = Schedule.objects.get(identifier="letters")
    told = row.type.identifier, row.collection, row.priority
    assert told == ("tests.backend.tasks.send", "letters", 7)
    atp.later(hours=1, schedules=["letters"])
    [run] = atp.drain()
    assert run.response == {"user": "ann", "subject": "hello"}
    given = tasks.send.using(queue_name="cards", priority=3)
    spec = schedule("cards", given, every=60, inputs={"user": "ann"})
    assert (spec.collection, spec.priority) == ("cards", 3)
    later = tasks.send.using(run_after=timezone.now() + timedelta(hours=1))
    with pytest.raises(InvalidSchedule, match="is given with run_after"):
        schedule("later", later, every=60, inputs={"user": "ann"})


def test_a_graph_a_chain_and_an_undo_accept_django_tasks(atp):
    with Graph("sums") as graph:
        first = graph.add(tasks.add, 1, second=2)
        graph.map(tasks.add, [(result(first), 10), (result(first), 20)], after=first)
        graph.add(tasks.shows, result(first), other=result(first), after=first)
    runs = {run.instance.node.name: run for run in atp.drain()}
    responses = {name: run.response for name, run in runs.items()}
    assert responses == {"add": 3, "add-2": 13, "add-3": 23, "shows": [3, [3], {"other": 3}]}
    # What was enqueued had no outputs yet.
    found = tasks.shows.get_result(runs["shows"].uuid)
    assert (found.args, found.kwargs) == ([None], {"other": None})
    echo.then(tasks.send, user=result("echo")["name"]).enqueue(name="ann")
    [*_, last] = atp.drain()
    assert last.response["user"] == "ann"
    with Graph("undone") as graph:
        first = graph.add(echo, undo=(tasks.send, {"user": "ann"}))
        graph.add(tasks.fails, after=first)
    runs = atp.drain(raises=False, retries=True)
    assert [run.response for run in runs] == [{}, None, {"user": "ann", "subject": ""}]

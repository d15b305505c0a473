"""``tasks``: the queue."""

from itertools import groupby
from operator import itemgetter

from atp.models import Task
from atp.states import State

from ..app.tasks import add, echo
from .client import fields, problem


def uuids(answer):
    return [each["instance"] for each in answer.json()["results"]]


def test_what_waits_is_in_claiming_order(world, api, django_assert_max_num_queries):
    """G8."""
    later = [echo.enqueue(), add.using(priority=9).enqueue(1), echo.using(priority=3).enqueue()]
    expected = [later[2], later[0], later[1]]
    expected.sort(key=lambda instance: instance.type_id)
    assert uuids(api.get("tasks")) == [str(instance.uuid) for instance in expected]
    for priority in (1, 2, 2, 3) * 3:
        echo.using(priority=priority).enqueue()
        add.using(priority=priority).enqueue(1)
    with django_assert_max_num_queries(12):
        rows = api.get("tasks").json()["results"]
    assert len(rows) == 27
    for _, lane in groupby(rows, key=itemgetter("type")):
        priorities = [row["priority"] for row in lane]
        assert priorities == sorted(priorities, reverse=True)


def test_what_waits_and_what_daemons_hold(full, api):
    [found] = api.get("tasks").json()["results"]
    task = Task.objects.get(instance=full[State.ACCEPTED])
    assert found == {
        "instance": str(full[State.ACCEPTED].uuid),
        "type": "tests.add",
        "collection": "",
        "priority": 0,
        "due_at": task.due_at.isoformat(),
        "start_before": None,
        "daemon": None,
        "attempt": 0,
        "request": "",
    }
    found = api.get("tasks?claimed=true").json()["results"]
    claimed = {str(full[s].uuid) for s in (State.SCHEDULED, State.RUNNING, State.PAUSED)}
    assert {each["instance"] for each in found} == claimed
    assert {each["daemon"] for each in found} == {"host:1"}
    for query, field in (("claimed=maybe", "claimed"), ("state=RUNNING", "state")):
        answer = api.get(f"tasks?{query}")
        assert (answer.status_code, fields(answer)) == (400, [field])
    url = api.get("instances?limit=1").json()["next"]
    answer = api.get(url.replace("instances", "tasks"))
    assert (answer.status_code, problem(answer)) == (400, "invalid-page-key")

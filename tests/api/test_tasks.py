"""``tasks``: the queue."""

import pytest

from atp.models import Task
from atp.states import State

from ..app.tasks import add, echo
from .client import fields, problem


def uuids(answer):
    return [each["instance"] for each in answer.json()["results"]]


def test_what_waits_is_in_claiming_order(world, api):
    """G8."""
    later = [echo.enqueue(), add.using(priority=9).enqueue(1), echo.using(priority=3).enqueue()]
    expected = [later[2], later[0], later[1]]
    expected.sort(key=lambda instance: instance.type_id)
    assert uuids(api.get("tasks")) == [str(instance.uuid) for instance in expected]


def test_pages(world, api):
    for priority in (1, 2, 2, 3):
        echo.using(priority=priority).enqueue()
        add.using(priority=priority).enqueue(1)
    url, seen = "tasks?limit=3", []
    while url:
        page = api.get(url)
        seen += uuids(page)
        url = page.json()["next"]
    assert seen == uuids(api.get("tasks"))
    assert len(seen) == 8


def test_one_task(full, api):
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


def test_what_daemons_hold(full, api):
    found = api.get("tasks?claimed=true").json()["results"]
    claimed = {str(full[s].uuid) for s in (State.SCHEDULED, State.RUNNING, State.PAUSED)}
    assert {each["instance"] for each in found} == claimed
    assert {each["daemon"] for each in found} == {"host:1"}


@pytest.mark.parametrize(
    ("query", "count"),
    [("type=tests.add", 1), ("type=tests.echo", 0), ("collection=books", 0), ("claimed=false", 1)],
)
def test_filters(full, api, query, count):
    assert len(uuids(api.get(f"tasks?{query}"))) == count


@pytest.mark.parametrize(
    ("query", "field"),
    [("claimed=maybe", "claimed"), ("type=tests.ecko", "type"), ("state=RUNNING", "state")],
)
def test_bad_parameters(full, api, query, field):
    """G13."""
    answer = api.get(f"tasks?{query}")
    assert (answer.status_code, fields(answer)) == (400, [field])


def test_a_page_key_of_another_list(full, api):
    url = api.get("instances?limit=1").json()["next"]
    answer = api.get(url.replace("instances", "tasks"))
    assert (answer.status_code, problem(answer)) == (400, "invalid-page-key")


def test_few_queries(full, api, django_assert_max_num_queries):
    for _ in range(20):
        echo.enqueue()
    with django_assert_max_num_queries(12):
        assert len(uuids(api.get("tasks"))) > 20

"""Schedules over HTTP (docs/api.md)."""

import pytest
from django.contrib.auth.models import Permission, User

from atp import queue
from atp.models import Instance, Schedule
from atp.operations.table import OPERATIONS

from .client import Api


@pytest.fixture
def hourly(world):
    queue.register_all()
    return queue.create_schedule("hourly", "tests.echo", every=3600, overlap="queue")


def test_run_now_and_a_backfill_answer_with_their_instances(hourly, api):
    told = api.post("schedules/hourly/run").json()
    assert (told["enqueued"], told["instances"]) == (1, [str(Instance.objects.get().uuid)])
    assert told["identifier"] == "hourly"
    start, end = hourly.next_at - 3 * hourly.every, hourly.next_at - 2 * hourly.every
    given = {"start": start.isoformat(), "end": end.isoformat()}
    told = api.post("schedules/hourly/backfill", given).json()
    uuids = Instance.objects.order_by("pk").values_list("uuid", flat=True)[1:]
    assert (told["enqueued"], told["instances"]) == (2, [str(uuid) for uuid in uuids])
    told = api.post("schedules/hourly/backfill", given).json()
    assert (told["enqueued"], told["instances"]) == (0, [])
    # Other verbs tell of none.
    assert not api.post("schedules/hourly/pause").json().keys() & {"enqueued", "instances"}


def test_a_pause_of_what_is_paused_tells_so(hourly):
    verb = OPERATIONS["schedule"]["pause"]
    for who, told in (("ann", "It is paused."), ("bob", " Before, it was paused by ann: disk.")):
        outcome = verb.perform(queue.get_schedule("hourly"), who, reason="disk")
        assert outcome.told.endswith(told)


def test_a_change_opens_no_pickle(hourly, api):
    """G14."""
    rows = Schedule.objects.filter(identifier="hourly")
    rows.update(format="pickle", data="evil")
    answer = api.send("PATCH", "schedules/hourly", {"every": 60})
    assert answer.status_code == 200
    row = rows.get()
    assert (row.every.total_seconds(), row.format, row.data) == (60.0, "pickle", "evil")


def test_what_is_wrong_is_told(hourly, api):
    """G13: what is missing is not said to be null; an object that is one tag is no arguments."""
    body = {"identifier": "other", "type": "tests.echo", "every": 60}
    for lacking in ("identifier", "type"):
        answer = api.post("schedules", {n: v for n, v in body.items() if n != lacking})
        [error] = answer.json()["errors"]
        assert (answer.status_code, error["detail"]) == (422, "It is required.")
        assert error["field"] == lacking
    assert api.post("schedules", body | {"overlap": "queue", "most": 101}).status_code == 422
    for inputs in ({"$float": "nan"}, {"$date": "2030-01-31"}, {"$result": ["a"]}):
        answer = api.send("PATCH", "schedules/hourly", {"inputs": inputs})
        assert answer.status_code == 422, answer.json()
        answer = api.post("schedules", body | {"inputs": inputs})
        assert answer.status_code == 422, answer.json()
    assert not Schedule.objects.filter(identifier="other").exists()


def test_inputs_take_a_permission_of_their_own(full, user_with, django_assert_max_num_queries):
    """G14; and a list takes as few queries for many."""
    for number in range(5):
        queue.create_schedule(f"of-{number}", "tests.echo", every=3600)
    user = user_with("view_schedule")
    api = Api(user)
    with django_assert_max_num_queries(10):
        found = api.get("schedules").json()["results"]
    assert len(found) > 5
    assert {each["inputs"] for each in found} == {None}
    address = f"schedules/{found[0]['identifier']}"
    assert Api(user).get(address).json()["inputs"] is None
    user.user_permissions.add(Permission.objects.get(codename="view_inputs"))
    seeing = Api(User.objects.get(pk=user.pk))
    assert seeing.get(address).json()["inputs"] is not None

"""Schedules over HTTP (docs/api.md)."""

import pytest
from django.contrib.auth.models import Permission, User

from atp import queue
from atp.models import Instance, Schedule

from .client import Api

LIST = "schedules/"


@pytest.fixture
def hourly(world):
    queue.register_all()
    return queue.create_schedule("hourly", "tests.echo", every=3600, overlap="queue")


def test_run_now_answers_with_its_instance(hourly, api):
    told = api.post("schedules/hourly/run").json()
    assert (told["enqueued"], told["instances"]) == (1, [str(Instance.objects.get().uuid)])
    assert told["identifier"] == "hourly"


def test_a_backfill_answers_with_its_instances(hourly, api):
    start, end = hourly.next_at - 3 * hourly.every, hourly.next_at - 2 * hourly.every
    given = {"start": start.isoformat(), "end": end.isoformat()}
    told = api.post("schedules/hourly/backfill", given).json()
    uuids = [str(uuid) for uuid in Instance.objects.order_by("pk").values_list("uuid", flat=True)]
    assert (told["enqueued"], told["instances"]) == (2, uuids)
    told = api.post("schedules/hourly/backfill", given).json()
    assert (told["enqueued"], told["instances"]) == (0, [])


def test_a_change_opens_no_pickle(hourly, api):
    """G14."""
    rows = Schedule.objects.filter(identifier="hourly")
    rows.update(format="pickle", data="evil")
    answer = api.send("PATCH", "schedules/hourly", {"every": 60})
    assert answer.status_code == 200
    row = rows.get()
    assert (row.every.total_seconds(), row.format, row.data) == (60.0, "pickle", "evil")


def test_other_verbs_tell_of_no_instances(hourly, api):
    told = api.post("schedules/hourly/pause").json()
    assert not told.keys() & {"enqueued", "instances"}


def test_an_instance_says_what_it_waits_behind(hourly, api):
    first, second = (queue.run_schedule("hourly") for _ in range(2))
    told = api.get(f"instances/{second.uuid}").json()
    assert told["waits_for"][0] == (
        f"It waits behind hourly ({first.uuid}): its schedule runs one at a time."
    )
    assert told["graph"] is None


@pytest.mark.parametrize("lacking", ["identifier", "type"])
def test_what_is_missing_is_required(hourly, api, lacking):
    """G13: it is not said to be null."""
    given = {"identifier": "other", "type": "tests.echo", "every": 60}
    del given[lacking]
    answer = api.post("schedules", given)
    [error] = answer.json()["errors"]
    assert (answer.status_code, error["detail"]) == (422, "It is required.")
    assert error["field"] == lacking


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"overlap": "wait"}, "none of allow, skip, queue, cancel"),
        ({"overlap": "queue", "most": 101}, "up to 100"),
        ({"overlap": None}, "None"),
    ],
)
def test_overlaps_that_there_are_not(hourly, api, given, told):
    """G13."""
    answer = api.post("schedules", {"identifier": "o", "type": "tests.echo", "every": 60} | given)
    assert answer.status_code == 422
    assert told in answer.content.decode()
    assert Schedule.objects.filter(identifier="o").count() == 0


def test_inputs_take_a_permission_of_their_own(full, user_with):
    """G14."""
    user = user_with("view_schedule")
    found = Api(user).get("schedules").json()["results"]
    assert {each["inputs"] for each in found} == {None}
    address = f"schedules/{found[0]['identifier']}"
    assert Api(user).get(address).json()["inputs"] is None
    user.user_permissions.add(Permission.objects.get(codename="view_inputs"))
    seeing = Api(User.objects.get(pk=user.pk))
    assert seeing.get(address).json()["inputs"] is not None


def test_the_list_takes_as_few_queries_for_many(world, user_with, django_assert_max_num_queries):
    queue.register_all()
    for number in range(5):
        queue.create_schedule(f"of-{number}", "tests.echo", every=3600)
    api = Api(user_with("view_schedule"))
    with django_assert_max_num_queries(10):
        assert len(api.get("schedules").json()["results"]) >= 5


@pytest.mark.parametrize(
    "inputs",
    [{"$float": "nan"}, {"$date": "2030-01-31"}, {"$object": [[1, 2]]}, {"$result": ["a"]}],
)
def test_inputs_that_are_one_tag_are_refused(hourly, api, inputs):
    """G13: such an object stands for something else than arguments."""
    answer = api.send("PATCH", "schedules/hourly", {"inputs": inputs})
    assert answer.status_code == 422, answer.json()
    answer = api.post(
        "schedules", {"identifier": "b", "type": "tests.echo", "every": 60, "inputs": inputs}
    )
    assert answer.status_code == 422, answer.json()
    assert not Schedule.objects.filter(identifier="b").exists()

"""``max_running_per_collection`` on the surfaces, and run by a real daemon."""

from dataclasses import replace

import pytest
from django.contrib.auth.models import User

from atp import queue
from atp.exceptions import InvalidLimit, InvalidType
from atp.models import Limit
from atp.reports.explaining.explain import why
from atp.verbs.registry import registry

from .api.client import Api
from .app.tasks import echo


@pytest.fixture
def declared(monkeypatch, db):
    """The Type tests.echo, as if its code said one at a time of each collection."""
    made = replace(registry.get("tests.echo"), max_running_per_collection=1)
    monkeypatch.setitem(registry._types, "tests.echo", made)
    queue.register_all()
    return made


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True])
def test_a_bad_number_is_refused_where_it_is_declared(value):
    from atp import task_type

    with pytest.raises(InvalidType, match=r"max_running_per_collection=.*whole number from 1"):
        task_type("tests.bad", max_running_per_collection=value)(lambda context: None)


def test_code_declares_it(declared):
    row = Limit.objects.get(type__identifier="tests.echo")
    assert (row.max_running_per_collection, row.is_set) == (1, False)


def test_an_operator_sets_another_until_it_is_left_to_the_code(declared):
    queue.limit("tests.echo", max_running_per_collection=3, by="ann")
    queue.register_all()
    assert Limit.objects.get(type__identifier="tests.echo").max_running_per_collection == 3
    queue.unlimit("tests.echo")
    assert Limit.objects.get(type__identifier="tests.echo").max_running_per_collection == 1


def test_it_is_of_a_type_not_of_a_lane(declared):
    with pytest.raises(InvalidLimit, match="of one lane of it give max_running"):
        queue.limit("tests.echo", "a", max_running_per_collection=3)


def test_the_api_tells_and_sets_it(declared):
    api = Api(User.objects.create_superuser("root", password="secret"))
    [found] = [row for row in api.get("limits").json()["results"] if row["type"] == "tests.echo"]
    assert found["max_running_per_collection"] == 1
    body = {"type": "tests.echo", "max_running_per_collection": 2}
    assert api.post("limits", body).status_code == 200
    assert Limit.objects.get(type__identifier="tests.echo").max_running_per_collection == 2


def test_the_page_tells_it(declared, client):
    client.force_login(User.objects.create_superuser("root", password="secret"))
    assert "1 of each collection" in client.get("/atp/types/tests.echo/").content.decode()
    lane = client.get("/atp/types/tests.echo/limit/?collection=a").content.decode()
    assert "max_running_per_collection" not in lane


def test_why_it_waits(declared, host):
    first = echo.using(collection="a").enqueue()
    then = echo.using(collection="a").enqueue()
    other = echo.using(collection="b").enqueue()
    host.claim(1, ["tests.echo"])
    assert queue.task(first).daemon is not None
    full = "limited to 1 at once in each collection, and 1 of collection 'a' is claimed"
    assert full in " ".join(why(then, queue.task(then)))
    assert full not in " ".join(why(other, queue.task(other)))

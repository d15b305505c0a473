"""Tests of ``unique``, ``timeout`` and ``max_retries`` of one Instance in all user interfaces."""

from datetime import timedelta

import pytest

from atp import queue
from atp.exceptions import IllegalTransition, InvalidOption
from atp.models import Instance
from atp.states import State

from .api.client import Api
from .app.tasks import echo
from .helpers import shell

pytestmark = pytest.mark.django_db

SEVEN = echo.using(unique="customer-7")
ENQUEUE = "/atp/types/tests.echo/enqueue/"


def facts(instance):
    return instance.timeout, instance.max_retries


def test_options_of_a_call_are_stored_with_each_of_its_instances():
    made = echo.using(timeout=1.5, max_retries=0).enqueue()
    assert facts(queue.get(made.uuid)) == (timedelta(seconds=1.5), 0)
    many = echo.using(timeout=timedelta(minutes=1)).enqueue_many([{}, {}])
    assert {facts(queue.get(each.uuid)) for each in many} == {(timedelta(minutes=1), None)}
    made = echo.using(timeout=None, max_retries=None).enqueue()
    assert queue.get(made.uuid).own is None


def test_redrive_names_the_instance_that_has_the_unique_key():
    """G13: other Instances of the call are redriven."""
    failed, free = SEVEN.enqueue(), echo.enqueue()
    queue.cancel(failed, free)
    other = SEVEN.enqueue()
    with pytest.raises(IllegalTransition, match=f"its unique key is taken by {other.uuid}"):
        queue.redrive(failed, free)
    assert (failed.state, free.state) == (State.FAILED, State.ACCEPTED)


def test_invalid_options_of_one_instance_are_rejected():
    for name, message, *values in (
        ("timeout", "timeout=.*: must be from", 0, -1, float("nan"), timedelta(days=4000)),
        ("timeout", "must be seconds or a timedelta", "60", True),
        ("max_retries", "must be a whole number from 0", -1, 1.0, True, 10**7),
    ):
        for value in values:
            with pytest.raises(InvalidOption, match=message):
                echo.using(**{name: value})
    for given, message in (
        ({"unique": ""}, "unique must not be empty"),
        ({"unique": 7}, "unique=7: must be text"),
        ({"unique": "a\nb"}, "printable text on one line"),
        ({"unique": "x" * 201}, "201 characters"),
        ({"unique": "a", "identifier": "b"}, "not both"),
        ({"unique": "a", "existing": "redrive"}, "needs an identifier"),
        ({"existing": "replace"}, "needs a unique key"),
        ({"existing": "debounce", "identifier": "a"}, "needs a unique key"),
        ({"unique": "a", "existing": "debounce"}, "needs run_after"),
        ({"unique": "a", "existing": "keep"}, "must be one of"),
    ):
        with pytest.raises(InvalidOption, match=message):
            echo.using(**given).enqueue()
    with pytest.raises(InvalidOption, match="is for one Instance, not 2"):
        SEVEN.enqueue_many([{}, {}])
    with pytest.raises(InvalidOption, match="not both"):
        SEVEN.enqueue_many([{}], identifiers=["a"])
    assert not Instance.objects.exists()
    assert SEVEN.enqueue_many([{}])[0].unique == "customer-7"


def test_api_reports_invalid_options_and_a_taken_unique_key(admin_user):
    """G13: the answer names the holder of the key, which ``existing="replace"`` changes."""
    api = Api(admin_user)
    given = {"type": "tests.echo", "unique": "customer-7"}
    for name, value, word in (
        ("identifier", "a", "not both"),
        ("timeout", "1h", "timeout"),
        ("max_retries", "3", "max_retries"),
    ):
        answer = api.post("instances", given | {name: value})
        assert answer.status_code == 422
        assert word in answer.content.decode()
    assert not Instance.objects.exists()
    first = api.post("instances", given)
    second = api.post("instances", [{"type": "tests.echo"}, given])
    assert second.status_code == 409
    assert second.json()["type"].endswith("unique-taken")
    assert first.json()["uuid"] in second.json()["detail"]
    assert "[1].unique" in second.content.decode()
    answer = api.post("instances", given | {"existing": "replace", "inputs": {"a": 2}})
    assert (answer.status_code, answer.json()["is_new"]) == (200, False)
    assert answer.json()["inputs_differ"] is False
    assert Instance.objects.get().inputs.value == {"a": 2}


def test_each_user_interface_accepts_and_shows_the_options_of_an_instance(admin_user, admin_client):
    body = {"type": "tests.echo", "unique": "a", "timeout": 90, "max_retries": 3}
    client, told = admin_client, Api(admin_user).post("instances", body).json()
    assert body.items() <= told.items()
    shell("enqueue", "tests.echo", "--unique", "b", "--timeout", "90s", "--max-retries", "3")
    form = {"inputs": "{}", "unique": "c", "timeout": "90s", "max_retries": "3"}
    client.post(ENQUEUE, form)
    made = list(Instance.objects.order_by("pk"))
    assert [(each.unique, *facts(each)) for each in made] == [
        (key, timedelta(seconds=90), 3) for key in "abc"
    ]
    again = client.post(ENQUEUE, form)
    assert again.status_code == 409
    assert f"/atp/instances/{made[2].uuid}/" in again.content.decode()
    shown = shell("show", str(made[1].uuid))
    assert "time-out" in shown
    assert "unique" in shown
    shown = client.get(f"/atp/instances/{made[1].uuid}/").content.decode()
    assert [word for word in ("Time-out", "Retries allowed", "Unique") if word not in shown] == []
    initial = client.get(f"{ENQUEUE}?like={made[1].uuid}").context["form"].initial
    assert (initial["timeout"], initial["max_retries"]) == ("90s", 3)
    queue.cancel(made[2])
    assert client.post(ENQUEUE, form).status_code == 302

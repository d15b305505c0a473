"""Tests of ``unique``, ``timeout`` and ``max_retries`` of one Instance in all user interfaces."""

import io
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from atp import queue, task_type
from atp.exceptions import IllegalTransition, InvalidOption
from atp.models import Instance
from atp.operations.registry import registry
from atp.states import State

from .api.client import Api
from .app.tasks import echo

pytestmark = pytest.mark.django_db

SEVEN = echo.using(unique="customer-7")
ENQUEUE = "/atp/types/tests.echo/enqueue/"


@pytest.fixture
def root(client):
    user = User.objects.create_superuser("root", password="secret")
    client.force_login(user)
    return user


def facts(instance):
    return instance.timeout, instance.max_retries


def test_options_of_a_call_are_stored_with_each_of_its_instances():
    made = echo.using(timeout=1.5, max_retries=0).enqueue()
    assert facts(queue.get(made.uuid)) == (timedelta(seconds=1.5), 0)
    many = echo.using(timeout=timedelta(minutes=1)).enqueue_many([{}, {}])
    assert {facts(queue.get(each.uuid)) for each in many} == {(timedelta(minutes=1), None)}
    made = echo.using(timeout=None, max_retries=None).enqueue()
    assert queue.get(made.uuid).own is None


def test_max_retries_of_an_instance_overrides_that_of_its_type(atp, monkeypatch):
    monkeypatch.setattr(registry, "_types", dict(registry._types))

    @task_type("tests.raises", max_retries=0, backoff=0)
    def raises(context):
        raise LookupError

    for given, states in (({}, ["FAILED"]), ({"max_retries": 1}, ["ACCEPTED", "FAILED"])):
        raises.using(**given).enqueue()
        assert [run.state for run in atp.drain(raises=False, retries=True)] == states


def test_redrive_names_the_instance_that_has_the_unique_key():
    """G13: other Instances of the call are redriven."""
    failed, free = SEVEN.enqueue(), echo.enqueue()
    queue.cancel(failed, free)
    other = SEVEN.enqueue()
    with pytest.raises(IllegalTransition, match=f"its unique key is taken by {other.uuid}"):
        queue.redrive(failed, free)
    assert (failed.state, free.state) == (State.FAILED, State.ACCEPTED)


def test_invalid_options_of_one_instance_are_rejected():
    """G13: the error is raised before anything is written."""
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


def test_api_reports_invalid_options_and_a_taken_unique_key(root):
    """G13: the answer names the holder of the key, which ``existing="replace"`` changes."""
    api = Api(root)
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


def test_each_user_interface_accepts_and_shows_the_options_of_an_instance(root, client):
    body = {"type": "tests.echo", "unique": "a", "timeout": 90, "max_retries": 3}
    told = Api(root).post("instances", body).json()
    assert (told["unique"], told["timeout"], told["max_retries"]) == ("a", 90.0, 3)
    options = ("--unique", "b", "--timeout", "90s", "--max-retries", "3")
    call_command("atp", "enqueue", "tests.echo", *options, stdout=io.StringIO())
    form = {"inputs": "{}", "unique": "c", "timeout": "90s", "max_retries": "3"}
    client.post(ENQUEUE, form)
    made = list(Instance.objects.order_by("pk"))
    assert [(each.unique, *facts(each)) for each in made] == [
        (key, timedelta(seconds=90), 3) for key in "abc"
    ]
    again = client.post(ENQUEUE, form)
    assert again.status_code == 409
    assert f"/atp/instances/{made[2].uuid}/" in again.content.decode()
    out = io.StringIO()
    call_command("atp", "show", str(made[1].uuid), stdout=out)
    shown = client.get(f"/atp/instances/{made[1].uuid}/").content.decode()
    for text, words in (
        (out.getvalue(), ("time-out", "unique")),
        (shown, ("Time-out", "Retries allowed", "Unique")),
    ):
        assert [word for word in words if word not in text] == []
    again = client.get(f"{ENQUEUE}?like={made[1].uuid}")
    initial = again.context["form"].initial
    assert (initial["timeout"], initial["max_retries"]) == ("90s", 3)
    queue.cancel(made[2])
    assert client.post(ENQUEUE, form).status_code == 302

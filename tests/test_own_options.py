"""``using(timeout=…, max_retries=…)``: for one Instance, on every surface."""

import io
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from atp import queue
from atp.daemon.shared.outcome import Kind, Outcome, move
from atp.exceptions import InvalidOption
from atp.models import Instance
from atp.payload import own
from atp.states import Event
from tests.samples import claimed, parameters

from .api.client import Api
from .app.tasks import echo

pytestmark = pytest.mark.django_db


def facts(instance):
    return instance.timeout, instance.max_retries


def test_using():
    made = echo.using(timeout=1.5, max_retries=0).enqueue()
    assert facts(queue.get(made.uuid)) == (timedelta(seconds=1.5), 0)


def test_enqueue_many():
    made = echo.using(timeout=timedelta(minutes=1)).enqueue_many([{}, {}])
    assert {facts(queue.get(each.uuid)) for each in made} == {(timedelta(minutes=1), None)}


def test_none_is_what_the_type_says():
    made = echo.using(timeout=None, max_retries=None).enqueue()
    assert queue.get(made.uuid).own is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"timeout": 0}, "timeout=0: must be from 0.001 to"),
        ({"timeout": -1}, "must be from"),
        ({"timeout": float("nan")}, "must be from"),
        ({"timeout": timedelta(days=4000)}, "must be from"),
        ({"timeout": "60"}, "must be seconds or a timedelta"),
        ({"timeout": True}, "must be seconds or a timedelta"),
        ({"max_retries": -1}, "must be a whole number from 0"),
        ({"max_retries": 1.0}, "must be a whole number from 0"),
        ({"max_retries": True}, "must be a whole number from 0"),
        ({"max_retries": 10**7}, "must be a whole number from 0"),
    ],
)
def test_a_bad_value_is_an_invalid_option(given, message):
    """G13: told before anything is written."""
    with pytest.raises(InvalidOption, match=message):
        echo.using(**given)


def test_retries_go_by_its_own():
    task = claimed(1)._replace(parameters=parameters(max_retries=0), own=own.of(max_retries=1))
    assert move(Outcome(Kind.ERROR, "why"), task).event == Event.RETRY
    assert move(Outcome(Kind.ERROR, "why"), task._replace(retries=1)).event == Event.FAIL


def test_the_api_takes_and_tells_it():
    api = Api(User.objects.create_superuser("root", password="secret"))
    body = {"type": "tests.echo", "timeout": 90, "max_retries": 3}
    answer = api.post("instances", body)
    assert answer.status_code == 201
    assert (answer.json()["timeout"], answer.json()["max_retries"]) == (90.0, 3)
    told = api.get(f"instances/{Instance.objects.get().uuid}").json()
    assert (told["timeout"], told["max_retries"]) == (90.0, 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [("timeout", 0), ("timeout", "1h"), ("max_retries", -1), ("max_retries", "3")],
)
def test_the_api_names_a_bad_value(name, value):
    """G13."""
    api = Api(User.objects.create_superuser("root", password="secret"))
    answer = api.post("instances", {"type": "tests.echo", name: value})
    assert answer.status_code == 422
    assert name in answer.content.decode()
    assert not Instance.objects.exists()


def run_atp(*args):
    out = io.StringIO()
    call_command("atp", *args, stdout=out)
    return out.getvalue()


def test_the_shell_takes_and_shows_it():
    run_atp("enqueue", "tests.echo", "--timeout", "90s", "--max-retries", "3")
    made = Instance.objects.get()
    assert facts(made) == (timedelta(seconds=90), 3)
    shown = run_atp("show", str(made.uuid))
    assert "time-out" in shown
    assert "90 s" in shown or "1.5 min" in shown


def test_the_page_takes_and_shows_it(client):
    client.force_login(User.objects.create_superuser("root", password="secret"))
    form = {"inputs": "{}", "timeout": "90s", "max_retries": "3"}
    client.post("/atp/types/tests.echo/enqueue/", form)
    made = Instance.objects.get()
    assert facts(made) == (timedelta(seconds=90), 3)
    text = client.get(f"/atp/instances/{made.uuid}/").content.decode()
    assert "Time-out" in text
    assert "Retries allowed" in text
    again = client.get(f"/atp/types/tests.echo/enqueue/?like={made.uuid}")
    initial = again.context["form"].initial
    assert (initial["timeout"], initial["max_retries"]) == ("90s", 3)

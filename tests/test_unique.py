"""``using(unique=…)``: the verbs, the options, and every surface."""

import io
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError

from atp import queue
from atp.exceptions import DuplicateIdentifier, IllegalTransition, InvalidOption, UniqueTaken
from atp.models import Instance
from atp.states import Event, State
from atp.store import get_store
from atp.store.values import Move

from .api.client import Api
from .app.tasks import echo

pytestmark = pytest.mark.django_db

SEVEN = echo.using(unique="customer-7")


def fail(instance):
    queue.cancel(instance)
    return queue.get(instance.uuid)


def test_while_it_is_live_no_other_has_the_key():
    made = SEVEN.enqueue(a=1)
    assert (made.unique, queue.get(made.uuid).unique) == ("customer-7", "customer-7")
    with pytest.raises(UniqueTaken) as caught:
        SEVEN.enqueue(a=2)
    assert caught.value.instance == made
    assert isinstance(caught.value, DuplicateIdentifier)
    fail(made)
    assert SEVEN.enqueue(a=3).is_new


def test_replace_and_debounce():
    made = SEVEN.enqueue(a=1)
    assert SEVEN.using(existing="replace").enqueue(a=2) == made
    assert queue.inputs(made).value == {"a": 2}
    later = SEVEN.using(existing="debounce", run_after=timedelta(hours=1))
    found = later.enqueue()
    assert found == made
    assert found.task.due_at > get_store().now() + timedelta(minutes=50)
    assert queue.task(made).due_at == found.task.due_at


def test_a_redrive_is_refused_while_another_has_the_key():
    """G13: the error names the other; more are redriven all the same."""
    failed, free = fail(SEVEN.enqueue()), fail(echo.enqueue())
    other = SEVEN.enqueue()
    with pytest.raises(IllegalTransition, match=f"its unique key is taken by {other.uuid}"):
        queue.redrive(failed, free)
    assert (failed.state, free.state) == (State.FAILED, State.ACCEPTED)
    fail(other)
    queue.redrive(failed)
    assert failed.state == State.ACCEPTED


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"unique": ""}, "unique must not be empty"),
        ({"unique": 7}, "unique=7: must be text"),
        ({"unique": "a\nb"}, "printable text on one line"),
        ({"unique": "x" * 201}, "201 characters"),
        ({"unique": "a", "identifier": "b"}, "give one"),
        ({"unique": "a", "existing": "redrive"}, "what has a key is live"),
        ({"existing": "replace"}, "give unique"),
        ({"existing": "debounce", "identifier": "a"}, "give unique"),
        ({"unique": "a", "existing": "debounce"}, "give run_after"),
        ({"unique": "a", "existing": "keep"}, "must be one of"),
    ],
)
def test_a_bad_value_is_an_invalid_option(given, message):
    """G13."""
    with pytest.raises(InvalidOption, match=message):
        echo.using(**given).enqueue()
    assert not Instance.objects.exists()


def test_it_is_of_one_instance():
    """G13."""
    with pytest.raises(InvalidOption, match="is for one Instance, not 2"):
        SEVEN.enqueue_many([{}, {}])
    with pytest.raises(InvalidOption, match="give one"):
        SEVEN.enqueue_many([{}], identifiers=["a"])
    assert SEVEN.enqueue_many([{}])[0].unique == "customer-7"


class TestApi:
    BODY = {"type": "tests.echo", "unique": "customer-7"}

    @pytest.fixture
    def api(self):
        return Api(User.objects.create_superuser("root", password="secret"))

    def test_taken(self, api):
        first = api.post("instances", self.BODY)
        assert first.json()["unique"] == "customer-7"
        second = api.post("instances", self.BODY)
        assert second.status_code == 409
        assert second.json()["type"].endswith("unique-taken")
        assert first.json()["uuid"] in second.json()["detail"]

    def test_which_of_many_is_told(self, api):
        api.post("instances", self.BODY)
        answer = api.post("instances", [{"type": "tests.echo"}, self.BODY])
        assert answer.status_code == 409
        assert "[1].unique" in answer.content.decode()

    def test_replace(self, api):
        api.post("instances", self.BODY)
        body = self.BODY | {"existing": "replace", "inputs": {"a": 2}}
        answer = api.post("instances", body)
        assert (answer.status_code, answer.json()["is_new"]) == (200, False)
        assert answer.json()["inputs_differ"] is False
        assert Instance.objects.get().inputs.value == {"a": 2}

    @pytest.mark.parametrize(
        "more",
        [{"identifier": "a"}, {"existing": "redrive"}, {"existing": "debounce"}, {"unique": ""}],
    )
    def test_bad_input(self, api, more):
        """G13."""
        assert api.post("instances", self.BODY | more).status_code == 422
        assert not Instance.objects.exists()


def run_atp(*args):
    out = io.StringIO()
    call_command("atp", *args, stdout=out)
    return out.getvalue()


def test_shell():
    run_atp("enqueue", "tests.echo", "--unique", "customer-7")
    made = Instance.objects.get()
    assert "customer-7" in run_atp("show", str(made.uuid))
    with pytest.raises(CommandError, match="is taken"):
        run_atp("enqueue", "tests.echo", "--unique", "customer-7")
    run_atp("enqueue", "tests.echo", '{"a":2}', "--unique", "customer-7", "--existing", "replace")
    assert Instance.objects.get().inputs.value == {"a": 2}


def test_page(client):
    client.force_login(User.objects.create_superuser("root", password="secret"))
    address, form = "/atp/types/tests.echo/enqueue/", {"inputs": "{}", "unique": "customer-7"}
    client.post(address, form)
    made = Instance.objects.get()
    assert "customer-7" in client.get(f"/atp/instances/{made.uuid}/").content.decode()
    again = client.post(address, form)
    assert again.status_code == 409
    assert f"/atp/instances/{made.uuid}/" in again.content.decode()
    get_store().record([Move(event=Event.FAIL, instance=made.pk, reason="CANCELLED")])
    assert client.post(address, form).status_code == 302

"""Hooks where operators and programs look: pages, API, shell."""

import json
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from atp import queue
from atp.models import Instance

from .api.client import Api
from .app.tasks_hooks import hooked

pytestmark = pytest.mark.django_db


@pytest.fixture
def ended():
    """An Instance that was cancelled, and its hook."""
    queue.register_all()
    made = hooked.enqueue()
    queue.cancel(made)
    return made, Instance.objects.get(type__identifier="chaos.hook")


@pytest.fixture
def root(client):
    user = User.objects.create_superuser("root", password="secret")
    client.force_login(user)
    return user


def test_the_api_tells_hooks_and_whose_it_is(ended, root):
    api = Api(root)
    made, hook = ended
    told = api.get(f"instances/{made.uuid}").json()
    assert (told["hooks"], told["hook_of"]) == ([str(hook.uuid)], None)
    told = api.get(f"instances/{hook.uuid}").json()
    assert (told["hooks"], told["hook_of"]) == ([], str(made.uuid))


def test_the_error_is_that_of_the_failure(ended, root):
    """And not the record that its hook was enqueued, which is later."""
    made, _ = ended
    told = Api(root).get(f"instances/{made.uuid}").json()
    assert told["error"] == "cancelled"


def test_the_api_tells_the_hooks_of_a_type(ended, root):
    told = Api(root).get("types/chaos.hooked").json()
    assert told["on_finished"] == told["on_failed"] == ["chaos.hook"]
    assert Api(root).get("types/chaos.hook").json()["on_failed"] == []


def test_the_page_of_an_instance(ended, root, client):
    made, hook = ended
    shown = client.get(f"/atp/instances/{made.uuid}/").content.decode()
    assert "<h2>Hooks</h2>" in shown
    assert f'href="/atp/instances/{hook.uuid}/"' in shown
    shown = client.get(f"/atp/instances/{hook.uuid}/").content.decode()
    assert "<dt>Hook of</dt>" in shown
    assert f'href="/atp/instances/{made.uuid}/"' in shown
    assert "<h2>Hooks</h2>" not in shown


def test_a_hook_that_has_been_removed(ended, root, client):
    made, hook = ended
    queue.delete(hook, cancel=True)
    shown = client.get(f"/atp/instances/{made.uuid}/").content.decode()
    assert f'href="/atp/instances/{hook.uuid}/"' not in shown
    assert '<span class="quiet">removed</span>' in shown


def test_the_page_of_a_type(ended, root, client):
    shown = client.get("/atp/types/chaos.hooked/").content.decode()
    assert "<dt>When one failed</dt><dd>chaos.hook</dd>" in shown
    assert "When one failed" not in client.get("/atp/types/chaos.hook/").content.decode()


def shell(*arguments):
    out = StringIO()
    call_command("atp", *arguments, stdout=out)
    return out.getvalue()


def test_the_shell(ended):
    made, hook = ended
    assert f"hook         {hook.uuid}" in shell("show", str(made.uuid))
    assert f"hook of      {made.uuid}" in shell("show", str(hook.uuid))
    assert json.loads(shell("show", str(made.uuid), "--json"))["hooks"] == [str(hook.uuid)]
    assert "on_failed: chaos.hook" in shell("types")

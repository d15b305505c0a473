"""The count of ends and hooks, held against those made by hand."""

import pytest

from atp import queue
from atp.models import Instance, LogRecord
from atp.rows.log import Kind

from ..app.tasks_hooks import hooked
from . import hooks

pytestmark = pytest.mark.django_db


@pytest.fixture
def ended(world, monkeypatch):
    """An Instance that has ended, with its hook, which has ended too."""
    # There is no receiver: what it is told of is another test's.
    monkeypatch.setattr(hooks, "TYPES", (hooks.HOOK.identifier,))
    queue.register_all()
    made = hooked.enqueue()
    queue.cancel(made)
    queue.cancel(Instance.objects.get(type__identifier="chaos.hook"))
    return made


def broken():
    return list(hooks.broken_of(set()))


def test_all_is_well(ended):
    assert broken() == []


def test_a_hook_is_missing(ended):
    Instance.objects.filter(type__identifier="chaos.hook").delete()
    assert broken() == [f"{ended.uuid}: 1 × FAILED, and 0 hooks of chaos.hook"]


def test_an_end_has_two(ended):
    uuid, type = str(ended.uuid), "chaos.hooked"
    again = hooks.HOOK.enqueue(uuid=uuid, type=type, state="FAILED", reason="CANCELLED")
    queue.cancel(again)
    assert broken() == [f"{uuid}: 1 × FAILED, and 2 hooks of chaos.hook"]


def test_a_hook_of_no_end(ended):
    odd = hooks.HOOK.enqueue(uuid="odd", type="chaos.hooked", state="FINISHED", reason="")
    queue.cancel(odd)
    assert broken() == ["odd: 0 × FINISHED, and 1 hooks of chaos.hook"]


def test_a_message_is_no_end(ended):
    LogRecord.objects.create(
        instance=ended, time=ended.created, kind=Kind.MESSAGE, state="FAILED", level=20
    )
    assert broken() == []


def test_one_is_live(ended):
    queue.redrive(ended)
    assert broken() == [f"{ended.uuid} is ACCEPTED"]


def test_the_receiver_has_not_got_one(ended, monkeypatch):
    monkeypatch.setattr(hooks, "WEBHOOK", hooks.HOOK.identifier)
    hook = Instance.objects.get(type__identifier="chaos.hook")
    assert broken() == [f"the receiver has never got {hook.uuid}"]
    assert list(hooks.broken_of({str(hook.uuid)})) == []

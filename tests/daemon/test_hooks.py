"""Hooks with real daemons: also of those whose worker was killed (G1, G2)."""

import base64
from datetime import timedelta

import pytest

from atp import queue
from atp.models import Instance
from atp.states import Reason, State
from atp.verbs.hook_specs import declared_hooks
from atp.webhooks import webhook

from ..app.tasks_hooks import hooked
from ..helpers import DEADLINE, wait_for
from ..receiver import receiver

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()


@pytest.fixture
def crm():
    with receiver(SECRET) as made:
        yield made
    declared_hooks.forget()


@pytest.fixture
def targets(crm, settings):
    """Tell the receiver of every end, from this process and from daemons."""
    target = {"url": crm.url, "secret": SECRET, "allow_http": True, "on": ["chaos.hooked"]}
    more = {"WEBHOOKS": {"crm": target}}
    settings.ATP = settings.ATP | more
    return more


def hooks_of(instance, type):
    uuid = str(instance.uuid)
    found = Instance.objects.filter(type__identifier=type)
    return [hook for hook in found if hook.hook_of == uuid]


def test_of_what_was_killed(atpd):
    """Its worker is gone, and nothing that it could have sent."""
    made = hooked.enqueue(how="exit")
    atpd()
    made.wait(DEADLINE)
    assert made.reason == Reason.STALE
    [hook] = hooks_of(made, "chaos.hook")
    hook.wait(DEADLINE)
    facts = {"uuid": str(made.uuid), "type": "chaos.hooked", "state": "FAILED", "reason": "STALE"}
    assert queue.response(hook).value == facts


def test_a_webhook(atpd, crm, targets):
    made = hooked.enqueue()
    atpd(settings=targets)
    made.wait(DEADLINE)
    [hook] = hooks_of(made, webhook.identifier)
    assert hook.wait(DEADLINE).state == State.FINISHED
    [received] = crm.received
    assert received.id == str(hook.uuid)
    assert crm.verified(received)["data"]["uuid"] == str(made.uuid)


def test_a_receiver_that_was_away_gets_it_later(atpd, crm, targets):
    crm.down()
    made = hooked.enqueue(how="fatal")
    atpd(settings=targets)
    made.wait(DEADLINE)
    [hook] = hooks_of(made, webhook.identifier)
    wait_for(lambda: queue.get(hook.uuid).retries == 1, what="the first retry")
    crm.up()
    # Sooner than in ten seconds.
    queue.change(hook, due=timedelta(0))
    assert hook.wait(DEADLINE).state == State.FINISHED
    assert crm.ids() == {str(hook.uuid)}

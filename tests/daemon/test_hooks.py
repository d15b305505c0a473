"""Hooks with real daemons: also of what was killed with its worker (G1, G2)."""

import base64
from datetime import timedelta

import pytest

from atp import queue
from atp.models import Instance
from atp.operations.registry import declared_hooks
from atp.states import Reason, State
from atp.webhooks import webhook

from ..app.tasks_hooks import hook, hooked
from ..helpers import DEADLINE, wait_for
from ..receiver import receiver

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()


@pytest.fixture
def crm():
    with receiver(SECRET) as made:
        yield made
    declared_hooks.forget()


def test_hooks_of_what_was_killed(atpd, crm, settings):
    """Its worker is gone, and nothing that it could have sent. A receiver that was away gets it."""
    target = {"url": crm.url, "secret": SECRET, "allow_http": True, "on": ["chaos.hooked"]}
    more = {"WEBHOOKS": {"crm": target}}
    settings.ATP = settings.ATP | more
    crm.down()
    made = hooked.enqueue(how="exit")
    atpd(settings=more)
    assert made.wait(DEADLINE).reason == Reason.STALE
    uuid = str(made.uuid)
    own, sent = (
        next(each for each in Instance.objects.of_type(type.identifier) if each.hook_of == uuid)
        for type in (hook, webhook)
    )
    facts = {"uuid": uuid, "type": "chaos.hooked", "state": "FAILED", "reason": "STALE"}
    assert queue.response(own.wait(DEADLINE)).value == facts
    wait_for(lambda: queue.get(sent.uuid).retries == 1, what="the first retry")
    crm.up()
    # Sooner than in ten seconds.
    queue.change(sent, due=timedelta(0))
    assert sent.wait(DEADLINE).state == State.FINISHED
    assert crm.ids() == {str(sent.uuid)}
    assert crm.verified(crm.received[-1])["data"]["uuid"] == uuid

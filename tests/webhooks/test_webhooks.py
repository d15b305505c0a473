"""Webhooks: the message, its signature, and what must never be sent (G13, G14)."""

import base64
import json
from datetime import timedelta
from types import SimpleNamespace
from uuid import UUID

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from atp import queue, task_type
from atp.checks import check_hooks
from atp.conf import InvalidSetting, setting_problems
from atp.exceptions import Fatal
from atp.fields import uuid7
from atp.models import Inputs, Instance, Type
from atp.operations.registry import declared_hooks, registry
from atp.store import get_store
from atp.webhooks import RETRIES, NotDelivered, webhook

from ..receiver import receiver

pytestmark = pytest.mark.django_db

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """Remove the Types that a test declares."""
    monkeypatch.setattr(registry, "_types", {**registry._types, "atp.webhook": webhook})
    declared_hooks.forget()
    yield
    declared_hooks.forget()


@pytest.fixture
def crm():
    with receiver(SECRET) as made:
        yield made


@pytest.fixture
def target(crm, settings):
    """Configure the receiver as the target "crm"."""

    def make(**more):
        given = {"url": crm.url, "secret": SECRET, "allow_http": True, **more}
        settings.ATP = settings.ATP | {"WEBHOOKS": {"crm": given}}

    make()
    return make


def new_context():
    lines = []
    return SimpleNamespace(uuid=uuid7(), lines=lines, log=lines.append, retries=0)


FACTS = {"uuid": str(UUID(int=7)), "type": "dem.one", "state": "FAILED", "reason": "STALE"}


def send(context=None, target="crm"):
    return webhook(context or new_context(), target=target, **FACTS)


def test_the_receiver_can_verify_the_signature(crm, target, monkeypatch):
    """The timestamp is that of the database, as the clock of this host might be wrong."""
    now = get_store().now() + timedelta(minutes=2)
    monkeypatch.setattr(type(get_store()), "now", lambda store: now)
    context = new_context()
    assert send(context) == {"status": 204}
    [received] = crm.received
    message = crm.verified(received)
    assert message["type"] == "atp.instance.failed"
    assert message["data"] == FACTS
    assert received.id == str(context.uuid)
    assert received.headers["content-type"] == "application/json"
    assert received.headers["webhook-timestamp"] == str(int(now.timestamp()))
    assert context.lines == ["crm answered 204"]
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(received.body, received.headers)
    # With two secrets, while one is replaced, each of them verifies it.
    target(secret=[OTHER, SECRET])
    send()
    received = crm.received[-1]
    for secret in (SECRET, OTHER):
        assert Webhook(secret).verify(received.body, received.headers)["data"] == FACTS


def test_a_retry_keeps_the_message_and_waits_as_long_as_the_target_asks(crm, target):
    """The specification of Standard Webhooks requires the same id and body.

    A shorter Retry-After does not shorten the backoff.
    """
    context = new_context()
    for retries, asked, after in ((0, "120", 120.0), (0, "5", None), (3, "120", None)):
        crm.answers += [(503, {"retry-after": asked})]
        context.retries = retries
        with pytest.raises(NotDelivered, match="crm answered 503") as raised:
            send(context)
        assert raised.value.after == after
    [_] = {(each.id, each.body) for each in crm.received}
    assert len(crm.received) == 3


def test_any_status_but_a_success_is_retried_for_a_day_and_410_never(crm, target):
    """By the specification of Standard Webhooks, 410 means that the target wants no more.

    If a redirect were followed, the target could choose where this host connects to (G14).
    """
    statuses = 301, 302, 307, 308, 400, 404, 429, 500
    for status in statuses:
        crm.answers += [(status, {"location": f"{crm.url}/elsewhere"})]
        with pytest.raises(NotDelivered, match=f"crm answered {status}"):
            send()
    assert [each.path for each in crm.received] == ["/hooks"] * len(statuses)
    assert (webhook.max_retries, len(webhook.backoff_steps)) == (8, 8)
    assert 23 * 3600 < sum(RETRIES) < 25 * 3600
    crm.answers += [410]
    with pytest.raises(Fatal, match="wants no more"):
        send()
    with pytest.raises(Fatal, match=r"has no target 'crn'\. Did you mean 'crm'\?"):
        send(target="crn")
    crm.down()
    with pytest.raises(NotDelivered, match="crm cannot be reached") as raised:
        send()
    assert crm.url not in str(raised.value)


BAD = [
    ({"secret": SECRET}, "has no 'url'."),
    ({"url": "https://crm.example"}, "has no 'secret'."),
    ({"url": "http://crm.example"}, "['url']: it must begin with https://, unless"),
    ({"url": "https://"}, "['url']: it must begin with https:// and a host."),
    ({"url": "https://crm.example/aufträge"}, "its path and query must be ASCII"),
    ({"url": "https://a b"}, "['url']: it must be the text of an address, without spaces."),
    ({"url": "https://ann:pw@crm.example"}, "['url']: it must have no user, no password"),
    ({"url": 7}, "['url']: it must be the text of an address"),
    ({"secret": "whsec_short"}, "['secret'] must be 'whsec_' and 24 to 64 random bytes"),
    ({"secret": []}, "['secret'] must be 'whsec_' and"),
    ({"on": "dem.*"}, "['on'] must be a list of patterns of Types, as ['dem.*'], not 'dem.*'."),
    ({"on_failed": [7]}, "['on_failed'] must be a list of patterns of Types"),
    ({"allow_http": "yes"}, "['allow_http'] must be True or False, not 'yes'."),
    ({"onfailed": []}, "has an unknown key 'onfailed'. Did you mean 'on_failed'?"),
]


def test_the_checks_report_invalid_targets(settings):
    good = {"url": "https://crm.example/hooks", "secret": SECRET}
    settings.ATP = {"WEBHOOKS": {"crm": good | {"on": ["dem.*"], "on_failed": ["tiles.?"]}}}
    assert setting_problems() == []
    for given, problem in BAD:
        whole = given if problem.startswith("has no") else good | given
        settings.ATP = {"WEBHOOKS": {"crm": whole}}
        [found] = setting_problems()
        assert found.startswith("ATP['WEBHOOKS']['crm']")
        assert problem in found
        assert str(whole.get("secret")) not in found or "secret" not in given
        with pytest.raises(InvalidSetting):
            send()
    for given, problem in (
        ([], "ATP['WEBHOOKS'] must be dict, not list."),
        ({"crm": 7}, "ATP['WEBHOOKS']['crm'] must be a dictionary, not int."),
        ({"": {}}, "ATP['WEBHOOKS']: the name of a target must not be empty."),
        ({7: {}}, "ATP['WEBHOOKS']: the name of a target=7: must be text."),
    ):
        settings.ATP = {"WEBHOOKS": given}
        assert setting_problems() == [problem]


def declare(identifier, **parameters):
    @task_type(identifier, **parameters)
    def handler(context):
        """A handler that these tests never run."""

    return handler


def test_the_database_stores_the_target_name_but_no_url_or_secret(crm, target):
    """Somebody who can write inputs cannot choose where to connect (G14).

    A target receives only the Types that match its patterns.
    """
    target(on=["dem.*"], on_finished=["tiles.*"])
    for name, hooks in (("dem.two", ["on_finished", "on_failed"]), ("tiles.one", ["on_finished"])):
        assert [entry["on"] for entry in declare(name).registration().hooks] == hooks
    assert declare("other.one").registration().hooks is None
    made = declare("dem.one").enqueue()
    queue.cancel(made)
    hook = Instance.objects.get(type__identifier="atp.webhook")
    inputs = json.loads(Inputs.objects.get(pk=hook.pk).data)
    assert inputs == {
        "target": "crm",
        "uuid": str(made.uuid),
        "type": "dem.one",
        "state": "FAILED",
        "reason": "CANCELLED",
        "identifier": None,
        "collection": "",
    }
    told = json.dumps([inputs, hook.own, list(Type.objects.values_list("hooks", flat=True))])
    assert "127.0.0.1" not in told
    assert SECRET not in told


def test_the_check_warns_of_a_target_pattern_that_matches_no_type(target):
    made = declare("dem.one").using(on_failed=(webhook, {"target": "crm"})).enqueue()
    queue.cancel(made)
    # A target of one Instance needs no pattern.
    assert Instance.objects.filter(type__identifier="atp.webhook").count() == 1
    target(on=["dme.*"])
    [problem] = check_hooks(None)
    assert (problem.id, problem.msg) == (
        "atp.W014",
        "ATP['WEBHOOKS']['crm']: no Type matches 'dme.*'.",
    )


def test_the_testing_kit_captures_webhooks(crm, target, atp):
    assert atp.webhooks == []
    target(on=["shop.*"])

    @task_type("shop.order")
    def order(context, *, item: int):
        if item > 3:
            raise Fatal("out of stock")

    order.enqueue(item=3)
    order.enqueue(item=4)
    runs = atp.drain(raises=False)
    assert crm.received == []
    assert [run.response for run in runs if run.type == "atp.webhook"] == [{"status": 204}] * 2
    finished, failed = atp.webhooks
    assert (finished.target, finished.json()["type"]) == ("crm", "atp.instance.finished")
    assert Webhook(SECRET).verify(failed.body, failed.headers)["data"]["reason"] == "FATAL"
    send()  # outside a drain
    assert (len(crm.received), len(atp.webhooks)) == (1, 2)

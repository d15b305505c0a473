"""Runs the README's Python blocks below "In your project" as they are printed."""

from types import SimpleNamespace

import pytest

from atp import Fatal, task_type
from atp.models import Instance, Node
from atp.operations.registry import registry
from atp.schedules import declaring
from tests.environment import ROOT

from .readme import blocks

OPTIONS, HANDLER, ENQUEUE, OTHERS = (
    each.text
    for each in blocks((ROOT / "README.md").read_text(), "In your project")
    if each.language == "python"
)


class Order:
    """A model of the project, with the parts that the README uses."""

    class DoesNotExist(Exception):
        pass

    pk = 7
    objects = SimpleNamespace(create=lambda **values: Order(), get=lambda pk: Order())


class Busy(Exception):
    seconds = 30


@pytest.fixture
def names(monkeypatch):
    """The names that a project has before the blocks run; the Types are removed afterwards."""
    monkeypatch.setattr(registry, "_types", dict(registry._types))
    monkeypatch.setattr(
        declaring.declared_schedules, "_specs", dict(declaring.declared_schedules._specs)
    )
    keys = []

    def book(order, *, key):
        keys.append(key)
        return SimpleNamespace(number=f"parcel of {order.pk}")

    def pay(context, *, order):
        return None

    def report(context):
        return None

    yield {
        "Busy": Busy,
        "Order": Order,
        "book": book,
        "customer": "Ann",
        "keys": keys,
        "pay": task_type("shop.pay")(pay),
        "report": task_type("shop.report")(report),
    }
    registry._kept.clear()


def run(text, names):
    exec(compile(text, "README.md", "exec"), names)


@pytest.mark.django_db
def test_the_readme_code_for_options_a_handler_and_an_enqueue_can_be_run(names, atp):
    found = {"DATABASES": {"default": {}}}
    run(OPTIONS, found)
    assert "client_connection_check_interval" in str(found["DATABASES"]["default"]["OPTIONS"])
    run(HANDLER, names)
    run(ENQUEUE, names)
    instance = Instance.objects.get(identifier="order-7")
    atp.drain()
    instance.refresh_from_db()
    assert instance.response.value == {"parcel": "parcel of 7"}
    assert names["keys"] == [str(instance.uuid)]
    # The handler retries when the carrier is busy, and fails without an order.
    names["book"] = lambda order, *, key: (_ for _ in ()).throw(Busy)
    waits = names["ship"].enqueue(order=7)
    atp.drain()
    assert waits.log.last().message.startswith("the carrier is busy")
    names["book"] = lambda order, *, key: (_ for _ in ()).throw(Order.DoesNotExist)
    names["ship"].enqueue(order=8)
    with pytest.raises(Fatal, match="there is no order 8"):
        atp.drain()


@pytest.mark.django_db
def test_the_readme_code_for_a_schedule_and_a_graph_can_be_run(names):
    run(HANDLER, names)
    run(OTHERS, names)
    assert {node.name for node in Node.objects.all()} == {"pay", "ship"}
    assert "nightly-report" in declaring.declared_schedules._specs

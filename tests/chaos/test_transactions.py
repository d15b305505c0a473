"""The fault of an open transaction locks the one row that it names, and no other."""

import pytest
from django.db import transaction

from atp.models import Instance

from .. import environment
from ..app import tasks_daemon as types
from ..helpers import DEADLINE, Thread, wait_for
from . import transactions

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(environment.kind() == "sqlite", reason="SQLite has no locks of rows"),
]
LAST = 0.99
SPAN = 1.0


def free():
    """Return the keys of the Instances that nobody has locked."""
    with transaction.atomic():
        rows = Instance.objects.select_for_update(skip_locked=True).order_by("pk")
        return list(rows.values_list("pk", flat=True))


def test_one_row_is_locked():
    instances = [types.noop.enqueue() for _ in range(5)]
    keys = [instance.pk for instance in instances]
    holding = Thread(transactions.hold, "instance", LAST, SPAN)
    wait_for(lambda: keys[-1] not in free(), DEADLINE)
    assert free() == keys[:-1]
    assert holding.result() == (f"instance {keys[-1]} was locked", str(instances[-1].uuid))
    assert free() == keys

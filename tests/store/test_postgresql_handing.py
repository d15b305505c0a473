"""Handing over on PostgreSQL: nobody waits for a lock, and it fits into a notice."""

import json

import pytest
from django.db import connection, transaction

from atp.models import Daemon, Inputs
from atp.payload.codec import Payload
from atp.states import State
from atp.store.values import Submission

from ..helpers import Thread
from .handings import heard, is_waiting
from .world import registration

pytestmark = [
    pytest.mark.skipif(connection.vendor != "postgresql", reason="that of PostgreSQL"),
    pytest.mark.django_db(transaction=True),
]


@pytest.fixture
def world(handing_world):
    return handing_world


def test_a_row_that_somebody_has_locked_is_not_waited_for(world, listening):
    host, _ = listening()
    with transaction.atomic():
        Daemon.objects.select_for_update().get(uuid=host.uuid)
        [key] = Thread(world.enqueue).result()
    assert is_waiting(world, key)


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_at_another_isolation_nothing_is_handed_over(world, listening, level):
    listening()
    with connection.cursor() as cursor:
        cursor.execute(f"SET default_transaction_isolation = '{level}'")
        try:
            [key] = world.enqueue()
        finally:
            cursor.execute("RESET default_transaction_isolation")
    assert is_waiting(world, key)


WIDE = "\U0001f71a"


@pytest.mark.parametrize(
    ("character", "size", "is_handed"),
    [
        *((WIDE, 1200, True), ('"', 1200, True), ("\\", 1200, True), ("\x7f", 1200, True)),
        *(("a", 1200, True), ("a", 1201, False), (WIDE, 1201, False)),
    ],
)
def test_inputs_of_any_size_and_kind(world, listening, character, size, is_handed):
    """G13: what does not fit into a notice is claimed."""
    _, ear = listening()
    longest = registration("t" * 200)
    world.store.register([longest])
    Daemon.objects.update(types=["t" * 200])
    data = json.dumps(character * size, ensure_ascii=False)[:size]
    names = {"identifier": WIDE * 200, "collection": WIDE * 200}
    request = Submission(Payload("json", data), priority=-100, **names)
    [instance] = world.store.enqueue(longest, [request])
    assert (world.state(instance.pk) == State.SCHEDULED) == is_handed
    told = [(claimed.data, claimed.collection) for _, claimed in heard(ear)]
    assert told == [(data, WIDE * 200)] * is_handed
    assert Inputs.objects.get(pk=instance.pk).data == data

"""Locks that others hold on what a daemon writes to: nobody else waits for them (G9, G11)."""

import pytest
from django.db import connection

from atp.models import LogRecord, Task
from atp.rows.log import Kind
from atp.states import State
from atp.store.values import Message, Note

from ..helpers import open_transaction
from .graphs import submit

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        "connection.vendor == 'sqlite'", reason="SQLite has one writer: nothing waits for a row"
    ),
]


@pytest.fixture
def impatient(world):
    """A world whose store waits for a lock only for a moment, as that of a daemon does."""
    world.store.limit_waiting(0.1)
    yield world
    world.store.limit_waiting(0)


def lock(rows):
    """Lock rows as whoever deletes them does."""
    return lambda: list(rows.select_for_update())


def test_a_log_that_is_to_be_shortened(impatient, settings):
    """G11: the notes of that attempt wait; those of its neighbour are written."""
    settings.ATP = {**settings.ATP, "MAX_LOG_RECORDS": 10}
    world, host = impatient, impatient.host()
    cases = [world.bring_to(State.RUNNING, host) for _ in range(2)]
    messages = tuple(Message(time=world.store.now(), level=20, text=str(n)) for n in range(21))

    def notes(left_out, messages=()):
        said = {"who": "worker", "messages": messages, "left_out": left_out}
        return [Note(instance=c.instance, attempt=c.attempt, **said) for c in cases]

    longer = notes(11, messages[-1:])
    assert world.store.note(notes(10, messages[:20]), daemon=host.uuid) == []
    own = LogRecord.objects.of_instance(cases[0].instance).filter(kind=Kind.MESSAGE)
    with open_transaction(lock(own)):
        delivered = world.store.deliver(longer, daemon=host.uuid)
        assert (delivered.locked, delivered.refused) == ({cases[0].instance}, [])
        assert shortened() == {cases[0].instance: "10", cases[1].instance: "11"}
    assert world.store.deliver(longer[:1], daemon=host.uuid).locked == frozenset()
    assert set(shortened().values()) == {"11"}


def shortened():
    """Return how many messages were left out, by Instance."""
    left = LogRecord.objects.filter(kind=Kind.LEFT_OUT)
    return dict(left.values_list("instance", "detail"))


def test_a_node_that_nobody_holds_and_somebody_has_locked(impatient):
    """G9: a scan mends its neighbour; and that node when the lock is gone."""
    world, host = impatient, impatient.host()
    keys = submit(world, "ab", [])
    assert {case.instance for case in host.claim()} == set(keys.values())
    Task.objects.update(daemon=None)

    def mended():
        return set(world.store.mend_tasks(list(keys.values()), world.store.now(), "tests"))

    def lock_node():
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT FROM atp_node WHERE instance_id = %s FOR KEY SHARE", [keys["a"]]
            )

    with open_transaction(lock_node):
        assert mended() == {keys["b"]}
    assert mended() == {keys["a"]}

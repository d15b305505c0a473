"""What the tests of handing over do with a daemon's listener."""

from django.db import connection

from atp.states import State

from .world import LEASE


def say(world, host, ear, **said):
    """Let the daemon renew its lease, and say that it is idle unless something else is given."""
    said = {"idle": True, "channel": ear.channel} | said
    world.store.renew(host.uuid, lease=LEASE, **said)


def heard(ear):
    """What has been handed over by now."""
    if connection.vendor == "postgresql":
        with ear._wrapper.cursor() as cursor:
            cursor.execute("SELECT 1")  # what was committed before is here with the answer
    ear.wait(0)
    return ear.handed()


def is_waiting(world, key):
    """Whether it was enqueued, and nothing else."""
    task = world.task(key)
    return (
        world.state(key) == State.ACCEPTED
        and (task.daemon_id, task.attempt) == (None, 0)
        and world.events(key) == ["enqueue"]
    )

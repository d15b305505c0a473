"""A queue with something of everything in it, for what shows it."""

import logging
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from atp import queue
from atp.models import Instance
from atp.states import Event, Reason, State
from atp.store import get_store
from atp.store.values import Change, Message, Note, ResponseData

from .app.tasks import add, echo
from .store.world import LEASE, Host, World

# What must never reach a page as HTML, nor a terminal as it is.
MARKUP = "<script>alert('x')</script>"
ESCAPE = "\x1b]0;title\x07"
HOSTILE = f"{MARKUP} {ESCAPE}"


@dataclass
class Populated:
    """One Instance in each state, by state; ``host`` holds those that are claimed."""

    world: World
    host: Host
    by_state: dict = field(default_factory=dict)

    def __getitem__(self, state):
        """The Instance as it is now."""
        return queue.get(self.by_state[state].uuid)

    def claimed(self, **options):
        """Enqueue and claim one more; returns it and the function that moves it on."""
        instance = echo.using(priority=100, **options).enqueue(said=MARKUP, number=7)
        [case] = self.host.claim(limit=1)
        assert case.instance == instance.pk

        def move(event, **details):
            change = Change(event=event, instance=instance.pk, attempt=case.attempt, **details)
            assert self.host.record(change) == []

        return instance, move

    def failed(self, reason=Reason.ERROR, **options):
        """Return one more that FAILED."""
        instance, move = self.claimed(**options)
        move(Event.START)
        message = f"Traceback\nValueError: {HOSTILE}"
        move(Event.FAIL, reason=reason, message=message, level=logging.ERROR)
        return queue.get(instance.uuid)

    def finished(self, **response):
        """Return one more that has FINISHED, with this response."""
        instance, move = self.claimed()
        move(Event.START)
        move(Event.FINISH, response=ResponseData(**response))
        return queue.get(instance.uuid)


@contextmanager
def world_in(folder):
    """A queue whose daemons have their locks in ``folder``; its promises hold in the end."""
    world = World(get_store(), folder)
    try:
        yield world
        world.check()
    finally:
        for host in world.hosts:
            host.close()


def populate(world):
    """Fill the queue of a world."""
    made = Populated(world, world.host("tests.echo", "tests.add", name="host"))
    made.by_state[State.FAILED] = made.failed(identifier=MARKUP, collection="books")
    made.by_state[State.FINISHED] = _finished(made)
    for state, events in (
        (State.SCHEDULED, []),
        (State.RUNNING, [Event.START]),
        (State.PAUSED, [Event.START, Event.PAUSE]),
    ):
        made.by_state[state], move = made.claimed()
        for event in events:
            move(event)
    made.by_state[State.ACCEPTED] = add.using(
        run_after=timedelta(hours=3), created_by="somebody"
    ).enqueue(1, 2)
    _working(made)
    return made


def _finished(made):
    instance, move = made.claimed()
    move(Event.START)
    file = {
        "name": MARKUP,
        "path": f"atp/{MARKUP}.txt",
        "content_type": "text/html",
        "size": 12,
        "attempt": 1,
    }
    now = made.world.store.now()
    note = Note(
        instance=instance.pk,
        attempt=1,
        who="host worker 0",
        progress=0.5,
        progress_message=MARKUP,
        messages=(Message(time=now, level=logging.WARNING, text=HOSTILE),),
        files=(file,),
    )
    assert made.world.store.note([note], daemon=made.host.uuid) == []
    data = f'{{"said":"{MARKUP}"}}'.encode()
    answer = ResponseData(content_type="application/json", data=data, size=len(data))
    move(Event.FINISH, response=answer)
    return queue.get(instance.uuid)


def _working(made):
    """Let the daemon say what its one worker does."""
    running = Instance.objects.get(state=State.RUNNING)
    since = made.world.store.now().isoformat()
    busy = {
        "worker": 0,
        "pid": 11,
        "type": "tests.echo",
        "instance": str(running.uuid),
        "since": since,
    }
    idle = {"worker": 1, "pid": 12, "instance": None, "since": None}
    made.world.store.renew(made.host.uuid, lease=LEASE, workers=[busy, idle])

"""A queue with something of everything in it, for what shows it."""

import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from atp import queue
from atp.fields import uuid7
from atp.graphs.plan import GraphPlan, PlannedEdge, PlannedNode
from atp.models import Graph, Instance, Node, Slot, Task
from atp.operations.enqueueing import payload_of
from atp.payload import codec
from atp.schedules.models import Outcome
from atp.states import Event, Reason, State
from atp.store import get_store, values

from .app.tasks import add, echo
from .app.tasks_downstream import call
from .store.world import LEASE, Host, World

# What must never reach a page as HTML, nor a terminal as it is.
MARKUP = "<script>alert('x')</script>"
ESCAPE = "\x1b]0;title\x07"
SCHEDULE = "nightly"
GRAPH = "mosaic"
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
            change = values.Move(event=event, instance=instance.pk, attempt=case.number, **details)
            assert self.host.record(change) == []

        return instance, move

    def failed(self, reason=Reason.ERROR, **options):
        """Return one more that FAILED."""
        instance, move = self.claimed(**options)
        move(Event.START)
        message = f"Traceback (most recent call last):\nValueError: {HOSTILE}"
        move(Event.FAIL, reason=reason, message=message, level=logging.ERROR)
        return queue.get(instance.uuid)

    def finished(self, **response):
        """Return one more that has FINISHED, with this response."""
        instance, move = self.claimed()
        move(Event.START)
        move(Event.FINISH, response=values.ResponseData(**response))
        return queue.get(instance.uuid)

    def error(self):
        """Return the error group of something that has FAILED; all are counted."""
        self.world.store.errors.count()
        return queue.error_groups()[0]

    def tailer(self):
        """Return a tailer that has read, with cursors."""
        store = self.world.store.tailers
        store.begin("tests.tailer", source="")
        store.look("tests.tailer", source=f"/srv/{MARKUP}", behind=3)
        if not store.positions("tests.tailer"):
            moves = [values.CursorMove(shard="a", before=None, after="7")]
            moves += [values.CursorMove(shard=MARKUP, before=None, after=MARKUP)]
            store.advance("tests.tailer", moves, values.Settled(records=2))
        return queue.get_tailer("tests.tailer")

    def downstream(self):
        """Return the downstream of a Type."""
        queue.register(call)
        return queue.get_downstream("relay")

    def graph(self):
        """Return a graph that is under way: one of its parts FAILED, and two nodes wait."""
        found = Graph.objects.filter(name=GRAPH).first()
        if found is not None:
            return found
        parts = ("part-0", "part-1", "part-2")
        edges = [("fetch", part) for part in parts] + [(part, "merge", "ended") for part in parts]
        made = submitted(
            GRAPH,
            dict.fromkeys(("fetch", *parts, "merge", MARKUP), echo),
            [*edges, ("merge", MARKUP)],
        )
        self.move_node(made, "fetch", Event.START, Event.FINISH)
        self.move_node(made, "part-0", Event.START, Event.FINISH)
        self.move_node(made, "part-1", Event.START, Event.FAIL, reason=Reason.ERROR)
        self.move_node(made, "part-2", Event.START)
        return made

    def move_node(self, graph, name, *events, **details):
        """Claim a node of a graph, and let these events happen to it."""
        key = Node.objects.get(graph=graph, name=name).pk
        Instance.objects.filter(pk=key).update(priority=100)
        Task.objects.filter(pk=key).update(priority=100)
        [case] = self.host.claim(limit=1)
        assert case.instance == key
        for event in events:
            last = details if event is events[-1] else {}
            self.host.move(case, event, **last)


def submitted(name, nodes, edges=(), **facts):
    """Write a graph; ``nodes`` are declared Types by name, ``edges`` as of a PlannedEdge."""
    facts = {"created_by": MARKUP} | facts
    planned = [
        PlannedNode(node, type.registration(), values.Submission(payload_of(type, (), {}, None)))
        for node, type in nodes.items()
    ]
    edges = [PlannedEdge(*edge) for edge in edges]
    plan = GraphPlan(uuid=uuid7(), name=name, nodes=planned, edges=edges, **facts)
    return get_store().graphs.submit(plan.checked())


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
    later = add.using(run_after=timedelta(hours=3), created_by="somebody")
    made.by_state[State.ACCEPTED] = later.enqueue(1, 2)
    _working(made)
    _scheduled(made)
    return made


def _scheduled(made):
    """Make a schedule, with a slot of each outcome."""
    timing = {"cron": "30 2 * * *", "timezone": "Europe/Vienna"}
    row = queue.create_schedule(
        SCHEDULE, "tests.echo", inputs={"first": 1}, by="somebody", **timing
    )
    queue.pause_schedule(SCHEDULE, reason=MARKUP)
    first, day = datetime(2026, 1, 1, 1, 30, tzinfo=UTC), timedelta(days=1)
    Slot.objects.bulk_create(
        Slot(
            schedule=row,
            at=first + number * day,
            outcome=outcome,
            instance_id=made.by_state[State.FINISHED].pk if outcome == "ENQUEUED" else None,
            decided=first + number * day,
            message=MARKUP,
        )
        for number, outcome in enumerate(Outcome)
    )


def _finished(made):
    instance, move = made.claimed()
    move(Event.START)
    file = {"name": MARKUP, "path": f"atp/{MARKUP}.txt", "size": 12, "attempt": 1}
    file["content_type"] = "text/html"
    now = made.world.store.now()
    note = values.ProgressUpdate(
        instance=instance.pk,
        attempt=1,
        who="host worker 0",
        progress=0.5,
        progress_message=MARKUP,
        messages=(values.Message(time=now, level=logging.WARNING, text=HOSTILE),),
        files=(file,),
    )
    assert made.world.store.records.note([note], daemon=made.host.uuid) == []
    # Three steps under the first attempt: one is done, one is a sleep, one has only begun.
    steps, key = made.world.store.steps, instance.pk
    steps.begin(key, 1, MARKUP)
    steps.keep(key, 1, MARKUP, codec.encode({"said": MARKUP}))
    steps.begin(key, 1, "sleep", delay=timedelta(hours=1))
    steps.begin(key, 1, "unknown")
    data = f'{{"said":"{MARKUP}"}}'.encode()
    answer = values.ResponseData(content_type="application/json", data=data, size=len(data))
    move(Event.FINISH, response=answer)
    return queue.get(instance.uuid)


def _working(made):
    """Let the daemon say what its one worker does."""
    running = Instance.objects.get(state=State.RUNNING)
    since = made.world.store.now().isoformat()
    busy = {"worker": 0, "pid": 11, "type": "tests.echo", "since": since}
    busy["instance"] = str(running.uuid)
    idle = {"worker": 1, "pid": 12, "instance": None, "since": None}
    made.world.store.daemons.renew(made.host.uuid, lease=LEASE, workers=[busy, idle])

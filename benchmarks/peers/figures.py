"""How the figures of a participant are taken: the same for all.

What one run on an empty store has found is given by the names in :data:`UNITS`.
"""

import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass

from ..core.latency import Latencies
from .catalogue import BULK, DRAIN, ENQUEUE, FAN, KILL, LATENCY, ORM, POSTGRES, SAVED
from .drivers.base import LAST, TELLS_EVERY, WARM_UP
from .failure import Failure
from .killing import KILL_UNITS, killed

# What comes before the tasks that a drain is timed by, as a part of them.
HEAD = 10
# Seconds without a task.
STALLED_AFTER = 60
LOOK_EVERY = 0.002
# The store is left alone for so many times as long as a look at it took. It is looked at only
# when all handlers have been entered: what is left then is not long.
REST = 2
# Seconds before the memory of workers is looked at that have nothing to do.
IDLE_FOR = 1
CLIENTS = 8
# Tasks, at most, that one enqueues while the others wait for their turn.
TURN = 500
FEWEST_TASKS = HEAD * TELLS_EVERY
SAVED_KEPT = "orm, kept connections"

_DELAYS = [
    f"p{share} from {start}" for start in ("the call", "its return") for share in (50, 90, 99)
]
# What each figure consists of, and its units.
_VALUES = {
    DRAIN: {"drain": "/s", "drain, rows": "a task"},
    ENQUEUE: {"enqueue": "/s", f"enqueue, {CLIENTS} clients": "/s"},
    BULK: {"bulk": "/s", "bulk, rows": "a task"},
    LATENCY: {**dict.fromkeys([f"latency, {delay}" for delay in _DELAYS], "ms"), "memory": "MB"},
    ORM: {SAVED: "/s", SAVED_KEPT: "/s"},
    FAN: {"fan, submitted": "s", "fan": "/s"},
    KILL: KILL_UNITS,
}
UNITS = {value: unit for units in _VALUES.values() for value, unit in units.items()}
FIGURE_OF = {value: figure for figure, units in _VALUES.items() for value in units}


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """How much is done for a figure."""

    tasks: int
    single: int
    samples: int
    saves: int


def drain(stage, amounts):
    """Tasks a second, and rows written for each from before it was claimed until it is settled.

    All are enqueued before the workers are started. The clock runs from the moment
    when a first tenth, which is not counted, has entered its handlers, until the
    store shows nothing unfinished.
    """
    stage.do("fill", _with_head(amounts.tasks))
    stage.store.settle()
    before = stage.store.written()
    found = {"drain": _drained(stage, amounts.tasks, stage.unfinished)}
    if before is not None:
        written = stage.store.written() - before
        found["drain, rows"] = written / _with_head(amounts.tasks)
    return found


def saved(stage, amounts):
    """Tasks a second that save a row by the ORM, with connections as Django has them by default.

    As :func:`drain`, but one in 50 tells when it has saved its row, and the clock runs
    until all rows are saved too: some tasks are gone from their store before.
    """
    return {SAVED: _saved(stage, amounts, keeps_connections=False)}


def saved_kept(stage, amounts):
    """The same with connections that are kept (CONN_MAX_AGE=None)."""
    return {SAVED_KEPT: _saved(stage, amounts, keeps_connections=True)}


def enqueue(group, stages, amounts):
    """Tasks a second that are enqueued one by one.

    With one client they take turns, which are so short that what slows the machine
    down for a while slows all of them; with several each does all of it by itself.
    """
    group.each(lambda participant: stages[participant.key].store.settle())
    turn = min(TURN, amounts.single)
    turns = amounts.single // turn
    seconds = defaultdict(float)
    with ExitStack() as stack:
        clients = group.each(
            lambda participant: stack.enter_context(stages[participant.key].opened("enqueue", turn))
        )
        for _ in range(turns):
            # Not before all are there, and have nothing to do.
            group.each(lambda participant: clients[participant.key].answer())
            group.shuffle()
            measured = group.each(lambda participant: clients[participant.key].measured())
            for key, (began, ended) in measured.items():
                seconds[key] += ended - began
        group.each(lambda participant: clients[participant.key].end())
    many = group.each(lambda participant: _by_many(stages[participant.key], amounts.single))
    return {key: {"enqueue": turns * turn / seconds[key], **found} for key, found in many.items()}


def _by_many(stage, count):
    if stage.participant.store != POSTGRES:
        return {}
    return {f"enqueue, {CLIENTS} clients": _at_once(stage, CLIENTS, count)}


def bulk(stage, amounts):
    """Tasks a second that one client enqueues by the bulk call, and rows written for each."""
    before = stage.store.written()
    with stage.client("bulk", amounts.tasks) as client:
        client.answer()
        began, ended = client.measured()
    found = {"bulk": amounts.tasks / (ended - began)}
    if before is not None:
        found["bulk, rows"] = (stage.store.written() - before) / amounts.tasks
    return found


def latency(stage, amounts):
    """The delays until handlers are entered by idle workers, and what of memory these have."""
    with stage.workers() as workers, stage.client("latency", amounts.samples) as client:
        client.answer()
        _all_told(stage, workers, WARM_UP)
        time.sleep(IDLE_FOR)
        memory = workers.memory
        client.start()
        calls = client.answer()["calls"]
        entered = _all_told(stage, workers, WARM_UP + amounts.samples)
    delays = [
        (1000 * (entered[number] - began), 1000 * (entered[number] - ended))
        for number, (began, ended) in enumerate(calls)
    ]
    from_call, from_return = map(list, zip(*delays, strict=True))
    percentiles = Latencies(from_call=from_call, from_return=from_return).percentiles()
    found = {f"latency, {name}": value for name, value in percentiles.items()}
    return {**found, "memory": memory / 2**20}


def fan(stage, amounts):
    """No-ops beside each other, and one task that waits for all of them.

    The seconds of the call that submits them; and how many of them a second are done, from
    the beginning of that call until the last task is entered.
    """
    with stage.workers() as workers, stage.client("fan", amounts.tasks) as client:
        client.answer()
        _all_told(stage, workers, WARM_UP)
        client.start()
        call = client.answer()
        told = _all_told(stage, workers, WARM_UP + amounts.tasks // TELLS_EVERY + 1)
        workers.kill()
    seconds = told[LAST] - call["began"]
    return {"fan, submitted": call["ended"] - call["began"], "fan": amounts.tasks / seconds}


# What is taken of one at a time, each on an empty store, and of all at the same time.
TAKEN = {
    DRAIN: (drain,),
    BULK: (bulk,),
    LATENCY: (latency,),
    ORM: (saved, saved_kept),
    FAN: (fan,),
    KILL: (killed,),
}
TAKEN_OF_ALL = {ENQUEUE: enqueue}


def _with_head(tasks):
    return tasks + tasks // HEAD


def _saved(stage, amounts, **options):
    stage.do("fill_saves", _with_head(amounts.saves))
    stage.store.settle()
    return _drained(stage, amounts.saves, stage.unsaved, **options)


def _drained(stage, tasks, left, **options):
    """Return how many tasks a second workers with these options do, until nothing is left."""
    with stage.workers(**options) as workers:
        told = _in_order(stage, workers, _with_head(tasks) // TELLS_EVERY)
        settled = _settled(left, workers)
        # Some would write a row for each task again when they are stopped.
        workers.kill()
    return tasks / (settled - told[tasks // HEAD // TELLS_EVERY - 1])


def _at_once(stage, clients, count):
    """Return how many tasks a second clients enqueue that begin at the same time."""
    each = count // clients
    with ExitStack() as stack:
        running = [stack.enter_context(stage.client("enqueue", each)) for _ in range(clients)]
        for client in running:
            client.answer()
        for client in running:
            client.start()
        answers = [client.answer() for client in running]
    began = min(answer["began"] for answer in answers)
    return each * clients / (max(answer["ended"] for answer in answers) - began)


def _in_order(stage, workers, count):
    """Return when tasks told of themselves, of those that do, in order."""
    return sorted(_all_told(stage, workers, count).values())


def _all_told(stage, workers, count):
    """Wait until so many tasks have told when they were called; return it by their numbers.

    One that is called again has told it the first time. Raises Failure.
    """
    before, deadline = 0, time.monotonic() + STALLED_AFTER
    while True:
        told = {}
        for number, moment in stage.told.pairs():
            told.setdefault(number, moment)
        if len(told) >= count:
            return told
        if len(told) > before:
            before, deadline = len(told), time.monotonic() + STALLED_AFTER
        if time.monotonic() > deadline:
            raise Failure(f"nothing moves after {before} of {count}", workers.complaints)
        workers.check()
        time.sleep(0.02)


def _settled(count_left, workers):
    """Wait until nothing is left to be done, and return when that was. Raises Failure."""
    deadline = time.monotonic() + STALLED_AFTER
    while True:
        looked = time.monotonic()
        left = count_left()
        now = time.monotonic()
        if not left:
            return now
        if now > deadline:
            raise Failure(f"{left} tasks never end", workers.complaints)
        workers.check()
        time.sleep(max(LOOK_EVERY, REST * (now - looked)))

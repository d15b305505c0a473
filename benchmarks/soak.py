"""Half of what the daemon can do, for as long as one likes: whether what is kept stays constant.

First it is measured how many tasks a second the daemon drains. What that leaves is removed,
and PostgreSQL's tables are written anew: else they would shrink all the time. Then half as
many are enqueued for some minutes, in bulk and one by one, of Types that keep an Instance for
10 s. The number of Instances and the size of each table are looked at all the time. In the last
fifth of it they have to be what they were in the second fifth: for ten minutes these are
minutes 8 to 10 and 2 to 4. Of those that come one by one it is told how soon their handlers
were entered, from the return of the call. It is run once, whatever --runs says.
"""

import time
from statistics import mean

from .core import batch, draining
from .core.latency import Latencies
from .core.told import listening

# Tasks come in ticks: some one by one, the rest of them in one call. In seconds.
TICK = 0.1
MOST_LATE = 5 * TICK
LOOK_EVERY = 2.0
# Parts of the time that are compared, and how much they may differ.
EARLY, LATE = (0.2, 0.4), (0.8, 1.0)
LEAST, MOST = 0.9, 1.1
# How long the daemons may take to remove what the full rate left, in seconds.
LONGEST_REMOVAL = 120.0
# Of smaller tables one page more would already be a difference, in bytes.
SMALL = 1_000_000


def add_arguments(add):
    add("--minutes", type=float, default=10, help="for how long")
    add("--tasks", type=int, default=20_000, help="tasks by which the full rate is measured")
    add("--share", type=int, default=50, help="what is enqueued, in percent of the full rate")
    add("--singly", type=int, default=5, help="percent of it that come one by one")
    draining.add_arguments(add)


def run(options, report):
    from .tasks import soak, soak_told

    load = draining.Load.of(options, [soak, soak_told], tasks=options.tasks)
    with listening(options.directory) as told, draining.ready(load, options.directory) as fleet:
        full = report.rates("full rate", [_full_rate(load, fleet)])
        before = _begin_anew(fleet)
        told.forget()
        rate = full * options.share / 100
        flow = _Flow(rate, options.singly / 100, 60 * options.minutes)
        looks, claimed = flow.run(fleet, before)
        time.sleep(1)
        entered = dict(told.pairs())
    claims = report.rates("claims", [claimed / flow.seconds])
    report.compare("what was to be enqueued", claims / rate, figure="claims")
    _tell_pickup(report, flow.returned, entered)
    for name in looks[-1][1]:
        _compare(report, name, looks, flow.seconds)


def _full_rate(load, fleet):
    """Two runs, of which the second is warmer."""
    return max(draining.drain(load, fleet).rate for _ in range(2))


def _begin_anew(fleet):
    """Wait until what the full rate left is removed, and give its room in the tables back.

    Returns the highest key of an Instance so far.
    """
    from django.db import connection

    from atp.models import Instance

    before = Instance.objects.latest("pk").pk
    until = time.monotonic() + LONGEST_REMOVAL
    while Instance.objects.exists():
        fleet.check()
        if time.monotonic() > until:
            raise batch.BatchError("What the full rate left was not removed in time.")
        time.sleep(TICK)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            for table in _seen().keys() - {"Instances"}:
                cursor.execute(f"VACUUM (FULL) {connection.ops.quote_name(table)}")
    return before


class _Flow:
    """A constant flow of tasks: so many a second, of which a share comes one by one."""

    def __init__(self, rate, singly, seconds):
        self._rate = rate
        self._singly = singly
        self.seconds = seconds
        # When enqueueing one by one had returned, by the number of the task.
        self.returned = {}

    def run(self, fleet, before):
        """Enqueue for the time; return what was seen, with its time, and how many were claimed.

        ``before`` is the highest key of an Instance so far.
        """
        from atp.models import Instance, Task

        looks, number, next_look, last = [], 0, 0.0, 0.0
        began = time.monotonic()
        while (now := time.monotonic() - began) < self.seconds:
            # What could not be enqueued in time is left out: it would come all at once.
            number = self._tick(number, number + round(self._rate * min(now - last, MOST_LATE)))
            last = now
            if now >= next_look:
                next_look = now + min(LOOK_EVERY, self.seconds / 50)
                looks.append((now, _seen()))
                fleet.check()
            time.sleep(max(0.0, TICK - (time.monotonic() - began - now)))
        self.seconds = time.monotonic() - began
        return looks, Instance.objects.latest("pk").pk - before - Task.objects.count()

    def _tick(self, number, due):
        from .tasks import soak, soak_told

        singly = round(self._singly * (due - number))
        for each in range(number, number + singly):
            soak_told.enqueue(number=each)
            self.returned[each] = time.monotonic()
        if number + singly < due:
            soak.enqueue_many([{"number": each} for each in range(number + singly, due)])
        return due


def _seen():
    """Return the number of Instances, and the size of each table with its indexes, in bytes."""
    from django.db import connection

    from atp.models import Instance

    found = {"Instances": Instance.objects.count()}
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT relname, pg_total_relation_size(oid) FROM pg_class "
                "WHERE relname LIKE 'atp\\_%%' AND relkind = 'r' ORDER BY relname",
                [],
            )
            found |= dict(cursor.fetchall())
        else:
            # Of a table SQLite would have to read all to know its size.
            cursor.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
            found["the file"] = cursor.fetchone()[0]
    return found


def _tell_pickup(report, returned, entered):
    waited = [1000 * (entered[number] - at) for number, at in returned.items() if number in entered]
    if not waited:
        raise batch.BatchError("No handler of those that came one by one was entered.")
    found = Latencies(from_call=waited, from_return=waited).percentiles()
    for name in ("p50", "p99"):
        report.row(f"pickup, {name}", [found[f"{name} from its return"]], unit="ms")


def _compare(report, name, looks, seconds):
    early, late = (_mean(name, looks, seconds, part) for part in (EARLY, LATE))
    if name != "Instances" and max(early, late) < SMALL:
        return
    unit, scale = ("", 1) if name == "Instances" else ("MB", 1e6)
    report.row(f"{name}, early", [early / scale], unit=unit)
    report.row(f"{name}, late", [late / scale], unit=unit)
    ratio = late / early
    report.compare("early", ratio, figure=f"{name}, late")
    if not LEAST <= ratio <= MOST:
        report.exceeded.append(f"{name}: late is {ratio:.2f} of early")


def _mean(name, looks, seconds, part):
    """Return what was seen in a part of the time, from its beginning to its end."""
    found = [seen[name] for at, seen in looks if part[0] <= at / seconds <= part[1]]
    if not found:
        raise batch.BatchError("Enqueueing took so long that nobody could look in between.")
    return mean(found)

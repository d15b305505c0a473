"""Whether draining stays as fast with much in the database, beside the rate with little in it.

Each case has a database of its own, which is filled once. Then they take turns, each
beside the case that it is divided by: in one run behind it, in the next before it. The
ratio is the median of those of the runs, so that what slows the machine down for a while
slows both. ``again`` is the same as ``few``: how far its ratio is from 1 says what the
others are worth.
Most are measured as ``drain`` is, with other Instances in the database: that wait,
of a Type that no daemon serves; that have FINISHED, of the same Type; that wait, of
the same Type and of higher priority, but are dated in the future. One has tasks of
many Types. Lanes of the same Type are held, or limited to one at a time, or many that
have one task each: of those that are drained, or dated in the future.

Where what waits is due and of the same Type, a daemon begins with it as soon as it
starts. There the first tasks warm it up, and the rate is that of those which finish
next, in front of as many as the case says; it is divided by that in front of few.
"""

import statistics
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from .core import batch, draining, filling
from .core.daemons import daemons
from .core.database import clone, used, vacuum

FEW = 1_000
PAST, FUTURE = 1_700_000_000, 4_000_000_000
OTHER = "benchmarks.other"
LOOK_EVERY = 0.2


def add_arguments(add):
    add("--tasks", type=int, default=20_000, help="tasks of a run")
    draining.add_arguments(add)
    add("--waiting", type=int, default=1_000_000, help="Instances that wait, where many do")
    add("--finished", type=int, default=1_000_000, help="Instances that have FINISHED")
    add("--dated", type=int, default=100_000, help="Instances dated in the future")
    add("--held", type=int, default=100_000, help="Instances in a lane that is held, or limited")
    add("--lanes", type=int, default=1_000, help="lanes of one task each")
    add("--types", type=int, default=100, help="Types that the tasks are of")
    add("--cases", type=str, default="", help="some, with commas between, as few,held")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A load, and how many Instances of which kind are in the database beside it.

    ``key`` is what the case is called by ``--cases``, ``name`` says what is there.
    ``others`` wait and are not served; the rest is of the load's own Type. ``behind``
    are due behind the tasks themselves. ``base`` is the key of the case that this
    one is divided by.
    """

    key: str
    name: str
    load: draining.Load
    others: int = 0
    finished: int = 0
    dated: int = 0
    behind: int = 0
    held: int = 0
    limited: int = 0
    later_lanes: int = 0
    base: str = ""

    @property
    def type(self):
        """The identifier of the load's Type; of its first, if it has more."""
        return self.load.types[0].identifier

    @property
    def first(self):
        """How many tasks warm the daemon up, where what waits is of the same Type."""
        return 4 * self.load.warm_up * self.load.workers

    def fill(self, connection):
        """Write what is there beside the load."""
        filling.fill_waiting(connection, OTHER, self.others, epoch=PAST)
        filling.fill_finished(connection, self.type, self.finished, epoch=PAST)
        filling.fill_waiting(connection, self.type, self.dated, epoch=FUTURE, priority=10)
        self._fill_lanes(connection)
        self.refill(connection)
        vacuum(connection)

    def _fill_lanes(self, connection):
        from atp import queue

        def fill(count, name, *, epoch=PAST, lanes=1):
            filling.fill_waiting(
                connection, self.type, count, epoch=epoch, collection=name, lanes=lanes
            )

        fill(self.held, "held")
        fill(self.limited, "limited")
        fill(self.later_lanes, "later ", epoch=FUTURE, lanes=max(1, self.later_lanes))
        if self.held:
            queue.hold(self.type, "held")
        if self.limited:
            queue.limit(self.type, "limited", max_running=1, rate="1/d")

    def refill(self, connection):
        """Write what of the same Type earlier runs have taken, the tasks included."""
        from atp.models import Task

        if self.behind:
            left = Task.objects.filter(type__identifier=self.type).count()
            lacking = self.first + self.load.tasks + self.behind - left
            filling.fill_waiting(connection, self.type, lacking, epoch=PAST)

    def rate(self, connection, directory):
        """Run daemons once, and return how many tasks a second they get through."""
        if not self.behind:
            return draining.run(self.load, directory).rate
        self.refill(connection)
        times = _finish_times(self, directory)[self.first - 1 : self.first + self.load.tasks]
        return self.load.tasks / (times[-1] - times[0])


def run(options, report):
    from django.db import connection

    cases = _cases(options)
    rates = {case.key: [] for case in cases}
    ratios = {case.key: [] for case in cases if case.base}
    with ExitStack() as stack:
        names = {
            case.key: stack.enter_context(_filled(connection, number, case))
            for number, case in enumerate(cases)
        }
        by_key = {case.key: case for case in cases}
        for run in range(options.runs):
            for key, ratios_of in ratios.items():
                base = by_key[key].base
                found = {}
                for each in (key, base) if run % 2 else (base, key):
                    with used(connection, names[each]):
                        found[each] = by_key[each].rate(connection, options.directory)
                    rates[each].append(found[each])
                ratios_of.append(found[key] / found[base])
    for case in cases:
        report.rates(case.name, rates[case.key])
    for key, found in ratios.items():
        case = by_key[key]
        report.compare(by_key[case.base].name, statistics.median(found), figure=case.name)


def _cases(options):
    """Return the cases that are asked for, and those that they are divided by."""
    known = _all_cases(options)
    keys = [case.key for case in known]
    asked = set(options.cases.split(",") if options.cases else keys)
    if unknown := asked - set(keys):
        raise SystemExit(f"no case is called {min(unknown)!r}: choose from {', '.join(keys)}")
    needed = asked | {case.base for case in known if case.key in asked}
    return [case for case in known if case.key in needed]


def _all_cases(options):
    from .tasks import NOOPS

    load = draining.Load.of(options, NOOPS[:1], tasks=options.tasks)
    many = replace(load, types=tuple(NOOPS[: options.types]))
    of_lanes = replace(load, lanes=options.lanes)
    few, few_own = f"{FEW:,} waiting", f"{FEW:,} waiting, of the same Type"
    waiting, own = f"{options.waiting:,} waiting", f"{options.waiting:,} waiting, of the same Type"
    finished, dated = f"{options.finished:,} FINISHED", f"{options.dated:,} dated in the future"
    types = f"{options.types:,} Types"
    held, limited = f"{options.held:,} in a held lane", f"{options.held:,} in a limited lane"
    lanes, later = f"{options.lanes:,} lanes of one", f"{options.lanes:,} lanes, of the future"
    few_beside = {"load": load, "others": FEW, "base": "few"}
    return [
        Case(key="few", name=few, load=load, others=FEW),
        Case(key="again", name=f"{few}, again", **few_beside),
        Case(key="waiting", name=waiting, load=load, others=options.waiting, base="few"),
        Case(key="finished", name=finished, finished=options.finished, **few_beside),
        Case(key="dated", name=dated, dated=options.dated, **few_beside),
        Case(key="types", name=types, **few_beside | {"load": many}),
        Case(key="held", name=held, held=options.held, **few_beside),
        Case(key="limited", name=limited, limited=options.held, **few_beside),
        Case(key="lanes", name=lanes, **few_beside | {"load": of_lanes}),
        Case(key="later", name=later, later_lanes=options.lanes, **few_beside),
        Case(key="few-own", name=few_own, load=load, behind=FEW),
        Case(key="own", name=own, load=load, behind=options.waiting, base="few-own"),
    ]


@contextmanager
def _filled(connection, number, case):
    """Have a database for a case; give its name."""
    with clone(connection, str(number)) as name:
        with used(connection, name):
            case.fill(connection)
        yield name


def _finish_times(case, directory):
    """Run daemons until the tasks have finished; return when each did, and more behind them."""
    from atp.models import Instance

    began = datetime.fromtimestamp(batch.clock(), UTC)
    done = Instance.objects.filter(type__identifier=case.type, finished__gte=began)

    def left():
        return case.first + case.load.tasks - done.count()

    with daemons(directory, processes=case.load.processes, types=case.load.patterns) as fleet:
        batch.wait_until(lambda: left() <= 0, left, fleet, LOOK_EVERY)
    return batch.finish_times(done)

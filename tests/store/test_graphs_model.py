"""Random graphs, random ends, recorded in random order on two connections, against a model (G17).

``ATP_GRAPHS`` is the number of graphs, each run with a seed of its own::

    ATP_GRAPHS=500 python -m tests.run tests/store/test_graphs_model.py
"""

import os
import random
from collections import defaultdict
from contextlib import suppress
from functools import partial

import pytest

from atp.exceptions import ATPError
from atp.models import Failing, Kind, LogRecord, Node, Task
from atp.states import TERMINAL, Event, Reason, State
from atp.store.values import Move

from ..helpers import at_once
from . import graphs
from .world import ONE, TWO, finish_of

pytestmark = pytest.mark.django_db(transaction=True)

GRAPHS = int(os.environ.get("ATP_GRAPHS", "0"))
HOSTS = 2


class Model:
    """A graph as it should be: the states of its nodes, by name."""

    def __init__(self, nodes, edges):
        self.upstreams = defaultdict(list)
        self.downstreams = defaultdict(list)
        for upstream, downstream, on in edges:
            self.upstreams[downstream].append((upstream, on))
            self.downstreams[upstream].append((downstream, on))
        self.states = dict.fromkeys(nodes, State.ACCEPTED)

    def may_start(self, node):
        return all(
            graphs.is_satisfied(on, self.states[upstream]) for upstream, on in self.upstreams[node]
        )

    def end(self, node, state):
        """End a node; and fail what has to fail for it."""
        self.states[node] = state
        if state == State.FAILED:
            for downstream, on in self.downstreams[node]:
                if on == "finished" and self.states[downstream] not in TERMINAL:
                    self.end(downstream, State.FAILED)


def random_graph(rng):
    """Return the names of nodes and the edges between them, each from an earlier to a later."""
    nodes = [f"n{number}" for number in range(rng.randint(1, 25))]
    density = rng.choice([0.05, 0.2, 0.6])
    edges = [
        (nodes[first], nodes[second], rng.choice(["finished"] * 3 + ["ended"]))
        for second in range(len(nodes))
        for first in range(second)
        if rng.random() < density
    ]
    return nodes, edges


class Run:
    """One graph that is run by two daemons, each with connections of its own."""

    def __init__(self, world, seed):
        self.world, self.rng = world, random.Random(seed)
        self.nodes, self.edges = random_graph(self.rng)
        types = {node: self.rng.choice([ONE, TWO]) for node in self.nodes}
        self.keys = graphs.submit(world, self.nodes, self.edges, types=types)
        self.names = {key: name for name, key in self.keys.items()}
        self.hosts = [world.host() for _ in range(HOSTS)]
        self.held = []

    def run(self):
        """Let all of it happen, and compare it with the model at every rest."""
        for _ in range(50 * len(self.nodes)):
            self.check()
            if not Task.objects.exists():
                break
            self.world.store.graph_ends.fail_dependants()
            for host in self.hosts:
                self.held += [(host, case) for case in host.claim(self.rng.randint(0, 5))]
            self.check_started()
            self.rng.shuffle(self.held)
            parts = self.held[: self.rng.randint(0, 4)], self.held[-2:]
            recordings = [self.choices(host, *parts) for host in self.hosts]
            others = [self.operator] * (self.rng.random() < 0.2)
            for outcome in at_once(*recordings, *others):
                if isinstance(outcome, Exception):
                    raise outcome
            open_ = set(Task.objects.claimed().values_list("pk", "attempt"))
            self.held = [(host, case) for host, case in self.held if case.key in open_]
        assert not Task.objects.exists(), "it does not come to an end"
        self.redrive()

    def choices(self, host, *parts):
        """Return the function that records random ends of what a daemon holds."""
        cases = {case.key: case for part in parts for holder, case in part if holder is host}
        return partial(host.record, *map(self.move, cases.values()))

    def move(self, case):
        event = self.rng.choice([Event.FINISH] * 7 + [Event.RETRY] + [Event.FAIL] * 2)
        message = self.rng.choice(["", "", "", "with a message"])
        reason = Reason.ERROR if event == Event.FAIL else ""
        return finish_of(self.world, case, message=message, reason=reason)._replace(event=event)

    def operator(self):
        """Cancel something, whatever it does."""
        with suppress(ATPError):
            self.world.store.control.cancel([self.rng.choice(list(self.names))])

    def check_started(self):
        """No node is claimed before each of its edges is satisfied."""
        model = Model(self.nodes, self.edges)
        model.states = self.states()
        for task in Task.objects.claimed():
            assert model.may_start(self.names[task.pk]), self.names[task.pk]

    def check(self):
        self.world.check()
        # Who was set free was so once for each time that it was blocked.
        freed = LogRecord.objects.filter(kind=Kind.FREED)
        assert freed.count() == freed.values("instance").distinct().count()

    def states(self):
        found = Node.objects.values_list("name", "instance__state")
        return {name: State(state) for name, state in found}

    def redrive(self):
        """In the end it is as the model has it; and what failed runs again to a good end."""
        self.compare()
        LogRecord.objects.filter(kind=Kind.FREED).delete()
        states = self.states()
        again = [key for node, key in self.keys.items() if states[node] == State.FAILED]
        self.rng.shuffle(again)
        moves = [Move(event=Event.REDRIVE, instance=key) for key in again]
        assert self.world.store.records.record(moves) == []
        [host, *_] = self.hosts
        while cases := host.claim(3):
            self.check_started()
            assert host.record(*[finish_of(self.world, case) for case in cases]) == []
            self.check()
        assert set(self.states().values()) <= {State.FINISHED}
        assert not Failing.objects.exists()

    def compare(self):
        """Every state follows from the ends that nobody else has brought about."""
        found = self.states()
        reasons = dict(Node.objects.values_list("name", "instance__reason"))
        model = Model(self.nodes, self.edges)
        for node in self.nodes:  # in the order of the graph
            if model.states[node] not in TERMINAL and reasons[node] != Reason.UPSTREAM:
                model.end(node, found[node])
        assert model.states == found


SEEDS = [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 12))]


@pytest.mark.parametrize("seed", range(GRAPHS) if GRAPHS else SEEDS)
def test_random_graphs(world, seed):
    """G17: none early, none stuck, and at rest every count is right."""
    Run(world, seed if not GRAPHS else random.SystemRandom().random()).run()


def test_the_last_two_parents_at_once(world):
    """G17: two daemons that finish them at once cannot both miss it."""
    for _ in range(5):
        keys = graphs.submit(world, "abc", [("a", "c"), ("b", "c")])
        hosts = [world.host(), world.host()]
        ends = [(host, finish_of(world, host.claim(1)[0])) for host in hosts]
        assert at_once(*[partial(host.record, end) for host, end in ends]) == [[], []]
        assert world.task(keys["c"]).waits == 0
        [case] = hosts[0].claim()
        assert case.instance == keys["c"]
        hosts[0].move(case, Event.START, Event.FINISH)

"""What all actors share: the store beside the model, and how one of many is chosen."""

from datetime import timedelta
from itertools import count

from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant

from ..comparison import compare
from ..model import MAX_RESTARTS, Model
from ..world import ONE, TWO, registration

HOUR = timedelta(hours=1)
# How many there are at most at a time. Among few, the same one is met again.
DAEMONS = 3
MOST_LIVE = 6
# What ends of the second Type may be removed at once.
TYPES = {
    ONE: registration(ONE, max_restarts=MAX_RESTARTS),
    TWO: registration(TWO, max_restarts=MAX_RESTARTS, retention=timedelta(microseconds=1)),
}
# Between two times that are told. One that is told again would be taken for the same.
BETWEEN = timedelta(milliseconds=5)
PICK = st.integers(0, 99)


def has_items(actors):
    return bool(actors.model.items)


def has_held(actors):
    return any(item.holder for item in actors.model.items.values())


def has_live(actors):
    return bool(actors.model.live())


class Actors(RuleBasedStateMachine):
    def __init__(self, world):
        super().__init__()
        self.world = world
        # One that remembers nothing of the last example, so that each can be repeated.
        self.store = world.store = type(world.store)(world.store.alias)
        self.model = Model()
        # All daemons that ever were, by name; those that are dead are told nothing.
        self.hosts = {}
        self.names = (f"d{number}" for number in count())
        self.texts = (f"said {number}" for number in count())
        self.before = self.store.now()
        self.is_timed = False
        # All in the past, however many: retention would not touch what ends in the future.
        self.times = (self.before - HOUR + n * BETWEEN for n in count())
        # The next example has a queue of its own.
        self._transaction = transaction.atomic()
        self._transaction.__enter__()

    def teardown(self):
        transaction.set_rollback(True)
        self._transaction.__exit__(None, None, None)
        for host in self.world.hosts:
            host.close()
        self.world.hosts.clear()

    @invariant()
    def step_is_done(self):
        """Store and model agree after each."""
        compare(self.world, self.model, self.hosts, self.before)
        self.before = self.store.now()

    def item(self, pick):
        """One of the Items, rather a younger one."""
        items = list(self.model.items.values())
        return items[-1 - pick % len(items)]

    def name(self, pick):
        """One of the daemons, also of those that are gone, rather a younger one."""
        names = list(self.hosts)
        return names[-1 - pick % min(len(names), DAEMONS + 2)]

    def alive(self, pick):
        """One of the daemons with a row and a lease; there is one."""
        names = [name for name, over in self.model.daemons.items() if not over]
        return names[pick % len(names)] if names else self.join()

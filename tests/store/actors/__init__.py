"""The actors around a queue: random verbs, executed on a store and on the model."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from .applications import Applications
from .base import PICK
from .daemons import Daemons
from .holders import Holders
from .operators import Operators

# What happens less often than that something is enqueued, claimed or done.
SELDOM = [
    *("look", "time_passes", "miss", "purge", "purge"),
    *("join_another", "join_again", "renew", "lose_lease", "leave"),
]


class Queue(Applications, Operators, Daemons, Holders):
    """All of them together; what a step has done is compared after it."""

    @rule(verb=st.sampled_from(SELDOM), pick=PICK)
    def now_and_then(self, verb, pick):
        getattr(self, verb)(pick)

"""Failing the Instances that a gate drops."""

from functools import partial

from .. import journal
from .chore import Chore, Portion

# The number of Instances that are failed at once, at first and at most.
FIRST, MOST = 250, 500


class Drop(Chore):
    """The chore that runs when a look has found such Instances, and again until none is left."""

    name, doing = "drop", "dropping what a gate drops"

    def __init__(self, *parts):
        super().__init__(*parts)
        self._portion = Portion(FIRST, MOST)

    def call(self):
        return partial(self._drop, self.core.identity.name)

    def _drop(self, who):
        with self._portion.measured() as limit:
            return self.core.store.gates.drop(who=who, limit=limit)

    def done(self, result):
        if result.value:
            journal.dropped(count=result.value)
            self.again()

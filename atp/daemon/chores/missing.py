"""Failing the Instances that were not started before their ``start_before``."""

from functools import partial

from .chore import Chore, Portion

# The number of Instances that are failed at once, at first and at most.
FIRST, MOST = 250, 500


class Miss(Chore):
    """The chore that runs when a look has found such Instances, and again until none is left."""

    name, doing = "miss", "looking for what was missed"

    def __init__(self, *parts):
        super().__init__(*parts)
        self._portion = Portion(FIRST, MOST)

    def call(self):
        return partial(self._miss, self.core.identity.name)

    def _miss(self, who):
        with self._portion.measured() as limit:
            return self.core.store.claims.miss(who=who, limit=limit)

    def done(self, result):
        if result.value:
            self.core.counters.missed(result.value)
            self.again()

"""Failing the Instances that were not started before their ``start_before``."""

from functools import partial

from .chore import Chore


class Miss(Chore):
    """The chore that runs when a look has found such Instances, and again until none is left."""

    name, doing = "miss", "looking for what was missed"

    def call(self):
        return partial(self.core.store.miss, who=self.core.identity.name)

    def done(self, result):
        if result.value:
            self.core.counters.missed(result.value)
            self.again()

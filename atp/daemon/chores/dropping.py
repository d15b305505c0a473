"""Failing the Instances that a gate drops."""

from functools import partial

from .. import journal
from .chore import Chore


class Drop(Chore):
    """The chore that runs when a look has found such Instances, and again until none is left."""

    name, doing = "drop", "dropping what a gate drops"

    def call(self):
        return partial(self.core.store.drop, who=self.core.identity.name)

    def done(self, result):
        if result.value:
            journal.dropped(count=result.value)
            self.again()

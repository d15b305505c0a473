"""Reporting the answers of downstreams to their rows, which all daemons share."""

import random

from ... import messages
from .chore import Chore


class Report(Chore):
    """The chore that reports a downstream's answers, before the ends of attempts are recorded.

    The probe of a downstream is over as soon as the end of its attempt is known.
    """

    name, doing = "downstreams", "reporting of downstreams"

    def is_due(self):
        return self.core.identity.is_registered and bool(self.core.downstreams.due())

    def call(self):
        core = self.core
        self._name = name = core.downstreams.due()[0]
        report, who = core.downstreams.take(name), core.identity.name
        spread = random.uniform(-1, 1)  # noqa: S311

        def tell():
            row = core.store.downstreams.report(name, report, who=who, spread=spread)
            if row is None:
                return None, 0.0
            return row, row.protection.opens_in(core.store.now().timestamp())

        return tell

    def done(self, result):
        row, opens_in = result.value
        downstreams, name = self.core.downstreams, self._name
        downstreams.told(name, row, opens_in)
        gone = downstreams.let_go(self.core.pool, name)
        self.attempts.hand_back(gone, messages.downstream_takes_no_more(name))

    def failed(self, result):
        """Keep the report that was not written, and send it again."""
        self.core.downstreams.told(self._name, None)

"""The scan: it looks for states of the queue that should never be (ATF).

:mod:`.forgotten` looks for forgotten Tasks, :mod:`.holders` for holders that are gone,
:mod:`.pairs` for Instances and Tasks that disagree, :mod:`.counts` for nodes of graphs that wait
for the wrong number of edges, and :mod:`.unplanned` for schedules whose slots nobody decides.
"""

from ....models import Instance, Task
from ...facts import NOWHERE, Cursor, Scanned
from ..base import ORMBase
from .counts import miscounted
from .forgotten import Forgotten
from .holders import Holders
from .look import Look
from .pairs import Pairs
from .unplanned import unplanned

# The number of rows of each table that one scan walks through.
SPAN = 10_000


class Scanning(ORMBase):
    def scan(self, cursor=None, *, who="", repair=True, now=None):
        cursor = cursor or Cursor()
        look = Look(self, who, repair=repair, now=now)
        forgotten, holders, pairs = Forgotten(look), Holders(look), Pairs(look)
        found = [*forgotten.first_of_each(), *holders.unswept(), *holders.ownerless()]
        found += unplanned(look)

        def tasks(low, high):
            found.extend(forgotten.between(low, high))
            found.extend(miscounted(look, low, high))
            return pairs.tasks(low, high)

        task = self._walk(Task, cursor.task, tasks, found)
        instance = self._walk(Instance, cursor.instance, pairs.instances, found)
        # A finding that both an index and the walk have shown counts once.
        once = {finding.key: finding for finding in found}
        cursor = Cursor(task=task, instance=instance)
        return Scanned(
            findings=tuple(once.values()), cursor=Cursor() if cursor == NOWHERE else cursor
        )

    def _walk(self, model, high, look, found):
        """Look at the next rows, downwards from the key ``high``; returns the key to go on from.

        ``look(low, high)`` looks at the rows between these keys, without the lower one. It returns
        findings, and whether the same rows should be looked at again.
        """
        if high == 0:
            return 0
        keys = self.rows(model).order_by("-pk").values_list("pk", flat=True)
        high = keys.first() if high is None else high
        if high is None:
            return 0
        low = next(iter(keys.filter(pk__lte=high)[SPAN : SPAN + 1]), 0)
        findings, again = look(low, high)
        found.extend(findings)
        return high if again else low

"""The scan: what should never be, found by queries that nothing else asks (ATF).

What was forgotten is in :mod:`.forgotten`, who holds it although gone in :mod:`.holders`,
Instances and Tasks that disagree in :mod:`.pairs`, nodes of graphs that wait for the wrong
number in :mod:`.counts`, and schedules whose slots nobody decides in :mod:`.unplanned`.
"""

from ....models import Instance, Task
from ...findings import NOWHERE, Cursor, Scanned
from ..base import ORMBase
from .counts import miscounted
from .forgotten import Forgotten
from .holders import Holders
from .look import Look
from .pairs import Pairs
from .unplanned import unplanned

# Rows of each table that one scan walks through.
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
        # What indexes told and the walk found too is one finding.
        once = {finding.key: finding for finding in found}
        cursor = Cursor(task=task, instance=instance)
        return Scanned(
            findings=tuple(once.values()), cursor=Cursor() if cursor == NOWHERE else cursor
        )

    def _walk(self, model, high, look, found):
        """Look at the next rows, from the key ``high`` downwards; return where to go on.

        ``look`` is given the keys between which they are, the lower one not
        included. It returns findings, and whether it is worth while to look at
        the same rows once more.
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

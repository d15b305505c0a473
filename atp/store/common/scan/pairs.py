"""Instances and Tasks that disagree.

Each statement compares both tables at once, so that nothing changes in between.
"""

from django.db.models import Exists, OuterRef

from ....models import Instance, Task
from ....states import CLAIMED, TERMINAL, State
from ...facts import Finding, Trouble
from .look import MOST


class Pairs:
    """Checks of the rows with ``low < key <= high``."""

    def __init__(self, look):
        self._look = look
        self._rows = look.rows

    def tasks(self, low, high):
        """Find Tasks whose Instance has ended, is gone, or is in a state that does not fit."""
        tasks = self._rows(Task).filter(pk__gt=low, pk__lte=high)
        own = self._rows(Instance).filter(pk=OuterRef("pk")).order_by()
        accepted = own.filter(state=State.ACCEPTED, attempt=OuterRef("attempt"))
        odd = [
            *_keys(tasks.waiting().filter(~Exists(accepted))),
            *_keys(tasks.claimed().filter(~Exists(own.filter(state__in=CLAIMED)))),
        ]
        if not odd:
            return [], False
        states = dict(self._rows(Instance).filter(pk__in=odd).values_list("pk", "state"))
        troubles = {key: _trouble(states.get(key)) for key in odd}
        return self._found(troubles, self._look.store.mend_tasks)

    def instances(self, low, high):
        """Find live Instances without a Task."""
        own = self._rows(Task).filter(pk=OuterRef("pk"), pk__gt=low, pk__lte=high).order_by()
        live = self._rows(Instance).filter(pk__gt=low, pk__lte=high, finished__isnull=True)
        keys = _keys(live.filter(~Exists(own)))
        if not keys:
            return [], False
        return self._found(dict.fromkeys(keys, Trouble.TASKLESS), self._look.store.mend_instances)

    def _found(self, troubles, mend):
        """Return the findings, mended if allowed, and whether there may be more to mend."""
        look, keys = self._look, list(troubles)
        named, spare = look.named(keys), look.may_run(keys)
        done = mend(keys, look.now, look.who, spare=spare) if look.repair else {}
        if look.repair:
            # Rows that were not mended were locked: another session is repairing or has repaired
            # them.
            keys = [key for key in keys if key in done or key in spare]
        findings = [
            Finding(
                trouble=troubles[key],
                instance=named[key][0],
                type=named[key][1],
                done=done.get(key, ""),
            )
            for key in keys
        ]
        return findings, bool(done) and len(troubles) >= MOST


def _keys(rows):
    return list(rows.order_by("pk").values_list("pk", flat=True)[:MOST])


def _trouble(state):
    if state is None:
        return Trouble.ORPHANED
    return Trouble.ENDED if state in TERMINAL else Trouble.MISMATCHED

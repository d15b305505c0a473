"""The operators: they steer what lives, whatever it is doing, and tell daemons what to do."""

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

from django.db import connection

from atp import queue
from atp.daemon.system.processes import uptime
from atp.exceptions import IllegalOrder, IllegalTransition, UnknownDaemon, UnknownInstance
from atp.models import Daemon, Instance, Task
from atp.states import State
from atp.store.values import PAUSE as TO_PAUSE
from atp.words.orders import Mode, Order

from .background import FAILURES, Background
from .kinds import KINDS

# One of them does something about this often, in seconds.
PAUSE = 0.25
WHO = "operator via chaos"
_REFUSALS = (IllegalTransition, UnknownInstance, IllegalOrder, UnknownDaemon)
# What is paused, goes quiet, is held or limited, is so for this long, in seconds.
ON_HOLD = 0.3, 4.0
# What they do, and how often beside each other.
VERBS = {"cancel": 8, "release": 3, "pause": 5, "change": 4, "quiet": 1, "hold": 2, "limit": 2}
# What is undone after a while, and how.
UNDONE = {"pause": "resume", "quiet": "claim_again", "hold": "open", "limit": "unlimit"}


@dataclass(frozen=True)
class Asked:
    """A call of ``cancel`` on the uptime clock; whether it was answered, or nobody knows."""

    at: float
    is_sure: bool


class Operators(Background):
    """Act as the seed says until told to stop; ``cancels`` is by uuid."""

    waits_for = "a verb of the operators"

    def __init__(self, seed):
        super().__init__("operators", seed)
        # What is to go on again, and when.
        self._on_hold = []
        self.cancels = {}
        self.counts = Counter()

    def _until_next(self):
        return self._random.uniform(0, 2 * PAUSE)

    def _turn(self):
        try:
            self._act()
        except FAILURES:
            connection.close()

    def _act(self):
        for each in [each for each in self._on_hold if each[0] <= uptime()]:
            _, verb, target = each
            self._do(verb, target)
            self._on_hold.remove(each)
        verb = self._random.choices([*VERBS], [*VERBS.values()])[0]
        target = self._choose(verb)
        if target is not None and self._do(verb, target) and verb in UNDONE:
            until = uptime() + self._random.uniform(*ON_HOLD)
            self._on_hold.append((until, UNDONE[verb], target))

    def _choose(self, verb):
        """Return what to do this to; None if there is nothing."""
        if verb in ("hold", "limit"):
            return self._place(verb)
        if verb == "quiet":
            rows = list(Daemon.objects.order_by("pk"))
        else:
            tasks = Task.objects.all()
            # Rather what runs: the rest is much more.
            if verb == "pause" or (verb != "change" and self._random.random() < 0.7):
                tasks = tasks.claimed()
            rows = list(tasks.order_by("pk").values_list("pk", flat=True)[:50])
        if not rows:
            return None
        chosen = self._random.choice(rows)
        return chosen if verb == "quiet" else Instance.objects.filter(pk=chosen).first()

    def _place(self, verb):
        """Return a Type and a collection, None for all; a gate may be that of everything."""
        if verb == "hold" and self._random.random() < 0.1:
            return None, None
        types = sorted(kind.type for kind in KINDS if kind.at_once is None)
        collection = self._random.choice((None, "", "esa", "dem"))
        return self._random.choice(types), collection

    def _do(self, verb, target):
        """Call a verb, and count how that went; tells whether it was done."""
        try:
            getattr(self, f"_{verb}")(target)
        except _REFUSALS:
            self.counts["refused"] += 1
            return False
        self.counts[verb] += 1
        return True

    def settle(self):
        """Let everything go on that is paused, quiet, held or limited, or about to be."""
        for gate in queue.gates():
            self._open((gate.type, gate.collection))
        for limit in queue.limits():
            if limit.who == WHO:
                self._unlimit((limit.type, limit.collection))
        for instance in Instance.objects.filter(state=State.PAUSED):
            self._settle(self._resume, instance)
        for task in Task.objects.filter(request=TO_PAUSE).select_related("instance"):
            self._settle(self._resume, task.instance)
        for daemon in Daemon.objects.exclude(mode=Mode.STOPPING):
            if daemon.mode == Mode.QUIET or daemon.request:
                self._settle(self._claim_again, daemon)

    @staticmethod
    def _settle(verb, target):
        try:
            verb(target)
        except _REFUSALS:
            return  # it has been asked already, or has ended

    def _pause(self, instance):
        queue.pause(instance, by=WHO)

    def _resume(self, instance):
        queue.resume(instance, by=WHO)

    def _release(self, instance):
        queue.release(instance, by=WHO)

    def _hold(self, place):
        queue.hold(*place, by=WHO)

    def _open(self, place):
        queue.open_gate(*place, by=WHO)

    def _limit(self, place):
        given = self._random.choice(
            (
                {"max_running": self._random.randint(1, 3)},
                {"rate": "20/s"},
                {"rate": "5/s", "burst": 3, "max_running": 2},
            )
        )
        queue.limit(*place, **given, by=WHO)

    def _unlimit(self, place):
        queue.unlimit(*place, by=WHO)

    def _quiet(self, daemon):
        queue.command(daemon, Order.QUIET, by=WHO)

    def _claim_again(self, daemon):
        queue.command(daemon, Order.RESUME, by=WHO)

    def _change(self, instance):
        given = self._random.choice(
            (
                {"priority": self._random.choice((-10, 0, 10))},
                {"due": timedelta(0)},
                {"postpone": timedelta(seconds=self._random.uniform(0.1, 2))},
                {"collection": self._random.choice(("", "esa", "dem"))},
            )
        )
        queue.change(instance, by=WHO, **given)

    def _cancel(self, instance):
        at, uuid = uptime(), str(instance.uuid)
        before = self.cancels.get(uuid)
        self.cancels.setdefault(uuid, Asked(at, is_sure=False))
        try:
            queue.cancel(instance, by=WHO)
        except IllegalTransition:
            if before is None:
                del self.cancels[uuid]  # it was in time
            raise
        self.cancels[uuid] = Asked(uptime(), is_sure=True)

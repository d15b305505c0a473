"""The parts that all chaos runs share: daemons on a database, faults, and a report."""

import random
import threading
import time
from collections import Counter
from contextlib import suppress

from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, InterfaceError, connection, connections

from atp import queue
from atp.commands import Mode
from atp.models import Daemon, Instance, LogRecord, Task
from atp.states import Event
from tests.helpers import wait_for

from .background import FAILURES
from .fleet import PROCESSES, START, Fleet
from .record import uptime
from .schedule import Action
from .server import hold, is_back

# Sentences about what is broken that are told.
TOLD = 20
# In seconds: what an Action may take beyond its span; how long it may take until all daemons are
# whole, and have renewed their leases; how often that is looked at.
PATIENCE, WHOLE_WITHIN, RENEWED_WITHIN, LOOK_EVERY = 90.0, 45.0, 15.0, 0.2
# Where kills are drawn: what is killed, and how often, of 20.
KILLED = ("kill_worker",) * 14 + ("kill_dispatcher",) * 4 + ("kill_daemon", "restart_database")


class Scenario:
    """A run on the database that Django is configured for.

    The run lasts for a number of ``minutes`` of Actions, or for a number of random ``kills``. If
    ``is_drawn``, the Actions follow from the seed. ``server`` is None on SQLite. ``outside`` are
    other services of the run. ``tell(line)`` reports progress.
    """

    types: tuple[str, ...] = ("chaos.*",)
    promise = ""
    # From the end of the disturbance until all is done, in seconds.
    drained_within = 300.0

    def __init__(self, *, folder, seed, server, tell, minutes, actions, is_drawn, kills, outside):
        self._folder, self._seed, self._server, self._tell = folder, seed, server, tell
        self._minutes, self._actions, self._is_drawn = minutes, actions, is_drawn
        self._wanted, self._outside = kills, outside
        self._random = random.Random(seed)
        self._path = folder / "record.jsonl"
        self._fleet = Fleet(folder, server, self.types)
        self._threads, self._operators = (), None
        self._begun = 0.0
        # What went wrong of the run itself, or was wanting after it, in words.
        self._wrong = []

    def run(self):
        """Do the whole run; return True if the promise was kept."""
        self._prepare()
        try:
            self._join()
            for member in self._fleet.there():
                member.atpd.ready(workers=PROCESSES)
            self._begun = uptime()
            self._disturb()
        finally:
            self._fleet.destroy()
        for thread in self._threads:
            if thread.error is not None:
                raise thread.error
        broken = [*self._wrong, *self._broken()]
        self._tell("counted:")
        for number, name in [*self._counts(), *self._common_counts()]:
            self._tell(f"{number:8d} {name}")
        for words in broken[:TOLD]:
            self._tell(f"BROKEN {self.promise}: {words}")
        if len(broken) > TOLD:
            self._tell(f"       … and {len(broken) - TOLD} more")
        return not broken

    def _prepare(self):
        engine = settings.DATABASES["default"]["ENGINE"]
        span = f"{self._wanted} kills" if self._wanted else f"{self._minutes:g} minutes"
        self._tell(f"seed {self._seed}, {span}, {engine}")
        call_command("migrate", verbosity=0)
        queue.register_all(by="chaos")

    def _join(self):
        for _ in range(START):
            self._fleet.join()

    def _disturb(self):
        """Carry out the faults, wait until all work is done, and stop the daemons."""
        raise NotImplementedError

    def _broken(self):
        """Yield a sentence for each breach of the promise."""
        raise NotImplementedError

    def _counts(self):
        """Yield pairs of a number and the name of what happened in this scenario alone."""
        raise NotImplementedError

    def _common_counts(self):
        ends = Counter(Instance.objects.values_list("state", "reason"))
        for (state, reason), number in sorted(ends.items()):
            yield number, f"Instances {state} {reason}".rstrip()
        yield LogRecord.objects.filter(kind=Event.EXPIRE).count(), "attempts lost"
        yield len(self._fleet.members), "daemons"
        yield self._fleet.kills, "kills"
        by_operators = self._operators.counts if self._operators else Counter()
        for name, number in sorted((by_operators | self._fleet.counts).items()):
            yield number, f"  {name}"

    # How it is disturbed

    def _act(self, *threads):
        """Carry out the Actions while these threads work, each in its own thread."""
        self._threads = threads
        for thread in threads:
            thread.start()
        acting = []
        for action in self._actions:
            time.sleep(max(0.0, self._begun + action.at - uptime()))
            acting.append(threading.Thread(target=self._do, args=(action,), daemon=True))
            acting[-1].start()
        time.sleep(max(0.0, self._begun + 60 * self._minutes - uptime()))
        deadline = uptime() + PATIENCE
        for thread in acting:
            thread.join(max(0.0, deadline - uptime()))
        if any(thread.is_alive() for thread in acting):
            self._wrong.append("an action of the schedule has not come to its end")
        for thread in threads:
            thread.stop()

    def _kill(self, feed, *, every):
        """Kill processes at random this many times, and feed before each kill."""
        while self._fleet.kills + self._fleet.counts["restart_database"] < self._wanted:
            feed()
            time.sleep(self._random.random() * 2 * every)
            self._draw_kill(self._random.choice(KILLED))
            if self._wrong:
                return

    def _draw_kill(self, name):
        """Kill a random process. Nothing happens if there is none of the chosen kind."""
        chosen = {"daemon": self._random.random(), "member": self._random.random()}
        if name != "restart_database":
            self._do(Action(at=0, name=name, **chosen))
        elif self._server is not None:
            self._do(Action(at=0, name=name, span=0.5, how="immediate"))
            wait_for(is_back, what="the database")

    def _do(self, action):
        """Carry out an Action and report the outcome."""
        try:
            came = self._hit(action)
        except Exception as error:
            came = f"FAILED: {error!r}"
            self._wrong.append(f"{action}: {error!r}")
        finally:
            if threading.current_thread() is not threading.main_thread():
                connections.close_all()
        self._tell(f"{uptime() - self._begun:8.2f} {action.name}: {came}")

    def _hit(self, action):
        since = uptime()
        if action.name == "restart_database":
            self._server.restart(action.how, action.span)
            self._fleet.note(action.name, since)
            return f"{action.how}, gone for {uptime() - since:.2f} s"
        came, uuid = "the database was away", ""
        if action.name == "terminate_backend":
            with suppress(DatabaseError, InterfaceError):
                came = self._server.terminate_backend(action.member) or "nobody was connected"
                self._fleet.note(action.name, since)
            return came
        if action.name == "open_transaction":
            with suppress(DatabaseError, InterfaceError):
                came, uuid = hold(action.how, action.member, action.span)
            self._fleet.note(action.name, since, instance=uuid)
            return came
        return self._fleet.act(action)

    # How it recovers

    def _recover(self):
        """Wait until all work is done and each daemon is healthy, then stop them; note the rest."""
        wait_for(is_back, what="the database")
        if not self._fleet.there():
            self._fleet.join()
        begun = uptime()
        self._await(self._left, self.drained_within)
        self._await(self._lacks, WHOLE_WITHIN)
        seen = {row.pid: row.seen for row in Daemon.objects.all()}
        self._await(lambda: self._not_renewed(seen), RENEWED_WITHIN)
        self._tell(f"         recovered in {uptime() - begun:.1f} s")
        self._stop()

    def _stop(self):
        """Shut every daemon down gracefully."""
        self._fleet.stop_all()
        for pid in self._fleet.survivors():
            self._wrong.append(f"process {pid} of a daemon that has ended is alive")
        for row in Daemon.objects.all():
            self._wrong.append(f"the row of daemon {row} is left, though none is running")

    def _await(self, look, seconds):
        """Settle repeatedly until nothing is left; after a time limit, note what is left."""
        begun = uptime()
        while True:
            try:
                self._settle()
                wanting = look()
            except FAILURES as error:
                connection.close()
                wanting = [repr(error)]
            if not wanting:
                return
            if uptime() > begun + seconds:
                self._wrong += [f"{words}, {seconds:.0f} s after the end" for words in wanting]
                return
            time.sleep(LOOK_EVERY)

    def _settle(self):
        """Bring about the end of the work; called before each check."""

    def _left(self):
        """Return texts about the work that is left."""
        told = "{0.instance.uuid} is {0.instance.state}, held by {0.daemon}, due {0.due_at}"
        return [
            told.format(row) for row in Task.objects.select_related("instance", "daemon")[:TOLD]
        ]

    def _lacks(self):
        """Return texts about what the daemons lack to be healthy and reported as such.

        The rows of killed daemons must be deleted too, which takes until their lease has ended.
        """
        there = {member.pid: member for member in self._fleet.there()}
        rows = {row.pid: row for row in Daemon.objects.all()}
        wanting = [f"daemon {pid} is gone, and its row is there" for pid in rows.keys() - there]
        for pid, member in there.items():
            if member.status is not None:
                wanting.append(f"daemon {pid} has ended with status {member.status}")
                continue
            atpd = member.atpd
            dispatchers, workers, loops = atpd.dispatchers(), atpd.workers(), atpd.loops()
            if (len(dispatchers), len(workers), len(loops)) != (1, PROCESSES, 1):
                told = f"{len(dispatchers)} dispatchers, {len(workers)} workers, {len(loops)} loops"
                wanting.append(f"daemon {pid} has {told}")
            if pid not in rows:
                wanting.append(f"daemon {pid} has not joined")
            elif {worker["pid"] for worker in rows[pid].workers} != {*workers, *loops}:
                wanting.append(f"daemon {pid} tells of other workers than it has")
            elif rows[pid].mode != Mode.RUNNING:
                wanting.append(f"daemon {pid} is {rows[pid].mode}")
        return wanting

    @staticmethod
    def _not_renewed(seen):
        now = {row.pid: row.seen for row in Daemon.objects.all()}
        return [
            f"daemon {pid} has not renewed its lease"
            for pid, time in seen.items()
            if pid not in now or now[pid] <= time
        ]

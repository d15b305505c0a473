"""The timeline: carries a schedule out, each Action in a thread so that none delays another."""

import threading
import time

from django.db import DatabaseError, InterfaceError, connections

from atp.daemon.system.processes import uptime

from . import transactions

# What an Action may take beyond its span, in seconds.
PATIENCE = 90.0


class Timeline:
    """Carries Actions out on a fleet and a server. ``tell(text)`` is told what came of each."""

    def __init__(self, fleet, server, tell):
        self._fleet = fleet
        self._server = server
        self._tell = tell
        self._threads = []
        self._begun = uptime()
        self.errors = []

    def run(self, actions, until):
        """Do everything at its time, and return at ``until`` seconds, when all is over."""
        for action in actions:
            self._wait(action.at)
            thread = threading.Thread(target=self._act, args=(action,), daemon=True)
            thread.start()
            self._threads.append(thread)
        self._wait(until)
        deadline = uptime() + PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, deadline - uptime()))
        if any(thread.is_alive() for thread in self._threads):
            self.errors.append("an action of the schedule has not come to its end")

    def _wait(self, at):
        time.sleep(max(0.0, self._begun + at - uptime()))

    def _act(self, action):
        try:
            came = self._do(action)
        except Exception as error:
            came = f"FAILED: {error!r}"
            self.errors.append(f"{action}: {error!r}")
        finally:
            connections.close_all()
        self._tell(f"{uptime() - self._begun:8.2f} {action.name}: {came}")

    def _do(self, action):
        since = uptime()
        if action.name == "restart_database":
            self._server.restart(action.how, action.span)
            self._fleet.note(action.name, since)
            return f"{action.how}, gone for {uptime() - since:.2f} s"
        if action.name == "terminate_backend":
            try:
                whose = self._server.terminate_backend(action.member)
            except (DatabaseError, InterfaceError):
                return "the database was away"
            if whose is None:
                return "nobody was connected"
            self._fleet.note(action.name, since)
            return whose
        if action.name == "open_transaction":
            try:
                came, uuid = transactions.hold(action.how, action.member, action.span)
            except (DatabaseError, InterfaceError):
                came, uuid = "the database was away", ""
            self._fleet.note(action.name, since, instance=uuid)
            return came
        return self._fleet.act(action)

"""How much memory a daemon takes while it is idle: its proportional share (PSS) in MB.

The daemon has run some tasks before. Its processes share what none of them has
written to since they were forked, and that counts for each in part; all together
is what would be free without them. They have loaded what the apps import that the
settings of the benchmarks install.
"""

import re
import time
from collections import defaultdict

from .core import draining
from .core.processes import Process

MEGABYTE = 1_000_000
# What the processes call themselves.
ROLES = {"atpd": "supervisor", "atpd-dispatch": "dispatcher", "atpd-worker": "workers"}


def add_arguments(add):
    draining.add_arguments(add)
    add("--settle", type=int, default=3, help="seconds that it is left alone before")


def run(options, report):
    from .tasks import NOOPS

    load = draining.Load.of(options, NOOPS[:1])
    found = defaultdict(list)
    for _ in range(options.runs):
        with draining.ready(load, options.directory) as fleet:
            time.sleep(options.settle)
            for role, memory in _memory(fleet).items():
                found[role].append(memory / MEGABYTE)
    for role, values in found.items():
        report.row(role, values, unit="MB")


def _memory(fleet):
    """Return the bytes of each role, and of all together."""
    found = dict.fromkeys(ROLES.values(), 0)
    for pid in fleet.pids:
        for process in Process(pid).family():
            name = re.sub(r"-\d+$", "", process.name)
            found[ROLES[name]] += process.memory
    return found | {"in all": sum(found.values())}

"""The run: every participant's figures in turn, and how ATP compares."""

import sqlite3

from django.db import DatabaseError

from ..core.database import ChoiceError
from ..core.report import told
from . import environments, explained
from .catalogue import FIGURES, PEERS, POSTGRES, REDIS, SQLITE, atp
from .failure import Failure
from .figures import CLIENTS, FEWEST_TASKS, TAKEN, UNITS, Amounts
from .findings import Findings
from .processes import Stage
from .stores import Stores
from .table import print_tables

# Whose stores are measured beside ATP on a database: Redis beside the one that is a server too.
_STORES = {"postgresql": (POSTGRES, REDIS), "sqlite": (SQLITE,)}

# What is said of each run as it comes; the medians of everything stand in the tables.
_SAID = (
    *("drain", "enqueue", f"enqueue, {CLIENTS} clients", "bulk"),
    *("drain, rows", "bulk, rows"),
    *("latency, p50 from the call", "latency, p99 from the call", "memory"),
)


def compare(options, report):
    """Measure ATP and the peers that are chosen, in turn. Raises ChoiceError."""
    if options.tasks < FEWEST_TASKS:
        raise ChoiceError(f"--tasks must be at least {FEWEST_TASKS} for peers.")
    kinds = _STORES[report.database]
    able = {peer.key: peer for peer in PEERS if peer.store in kinds}
    participants = [atp(kinds[0]), *_chosen("peer", options.only, able)]
    figures = _chosen("figure", options.figures, {figure: figure for figure in FIGURES})
    findings = Findings(participants, figures)
    print(f"{explained()}\n")
    with Stores(options.directory) as stores:
        comparison = _Comparison(options, stores, findings)
        for participant in participants:
            comparison.make_ready(participant)
        print()
        for run in range(options.runs):
            for figure in figures:
                # Nobody always comes behind the same other.
                first = run % len(participants)
                for participant in participants[first:] + participants[:first]:
                    comparison.take(run, figure, participant)
    findings.give(report)
    print_tables(findings)


class _Comparison:
    def __init__(self, options, stores, findings):
        self._directory = options.directory
        self._venvs = options.venvs
        self._amounts = Amounts(tasks=options.tasks, single=options.single, samples=options.samples)
        self._stores = stores
        self._findings = findings
        self._pythons = {}

    def make_ready(self, participant):
        """Have what a participant needs, and say with which settings it runs."""
        try:
            self._pythons[participant.key] = environments.python(participant, self._venvs)
            server = self._stores.start(participant.store)
        except (Failure, OSError) as error:
            self._findings.fail(participant, str(error))
            print(f"{participant.name} has failed: {error}", flush=True)
        else:
            self._findings.serve(participant, server)
            about = filter(None, [participant.versions, server, participant.settings])
            print(f"{participant.name}: {'; '.join(about)}", flush=True)

    def take(self, run, figure, participant):
        """Take a figure of a participant once, unless it has none or has failed."""
        if not self._findings.wants(participant, figure):
            return
        try:
            with self._stores.empty(participant.store) as store:
                stage = Stage(participant, self._pythons[participant.key], store, self._directory)
                stage.do("prepare")
                found = TAKEN[figure](stage, self._amounts)
        except (Failure, DatabaseError, sqlite3.Error, OSError) as error:
            self._findings.fail(participant, str(error), figure)
            said = f"failed: {error}"
        else:
            self._findings.add(participant, found)
            said = ", ".join(
                f"{told(found[value])} {UNITS[value]}" for value in _SAID if value in found
            )
        print(f"run {run + 1}: {figure:<8} {participant.name:<24} {said}", flush=True)


def _chosen(kind, given, able):
    """Return the values of the keys that are given, with commas; all if none is."""
    keys = [key.strip() for key in given.split(",") if key.strip()]
    for key in keys:
        if key not in able:
            raise ChoiceError(f"There is no {kind} {key!r} here: choose from {', '.join(able)}.")
    return [able[key] for key in keys or able]

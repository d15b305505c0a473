"""The run: every participant's figures in turn, and how ATP compares."""

from collections import defaultdict
from contextlib import ExitStack, contextmanager

from ..core.database import ChoiceError
from ..core.report import told
from . import environments, explained
from .catalogue import PEERS, POSTGRES, REDIS, SAVED, SQLITE, atp
from .failure import Failure
from .figures import CLIENTS, FEWEST_TASKS, SAVED_KEPT, TAKEN, TAKEN_OF_ALL, UNITS, Amounts
from .findings import Findings
from .group import FAILURES, Group
from .killing import KILL_UNITS
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
    *(SAVED, SAVED_KEPT),
    *("fan, submitted", "fan"),
    *KILL_UNITS,
)


def compare(options, report):
    """Measure ATP and the peers that are chosen, in turn. Raises ChoiceError."""
    if min(options.tasks, options.saves) < FEWEST_TASKS:
        raise ChoiceError(f"--tasks and --saves must be at least {FEWEST_TASKS} for peers.")
    kinds = _STORES[report.database]
    own = atp(kinds[0])
    figures = _chosen("figure", options.figures, {figure: figure for figure in own.figures})
    able = {peer.key: peer for peer in PEERS if peer.store in kinds}
    chosen = _chosen("peer", options.only, able)
    participants = [own, *(peer for peer in chosen if set(figures).intersection(peer.figures))]
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
                comparison.take(run, figure, participants[first:] + participants[:first])
    findings.give(report)
    print_tables(findings)


class _Comparison:
    def __init__(self, options, stores, findings):
        self._directory = options.directory
        self._venvs = options.venvs
        self._amounts = Amounts(
            tasks=options.tasks,
            single=options.single,
            samples=options.samples,
            saves=options.saves,
        )
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

    def take(self, run, figure, participants):
        """Take a figure once of each, unless it has none or has failed."""
        wanted = [each for each in participants if self._findings.wants(each, figure)]
        for some in [wanted] if figure in TAKEN_OF_ALL else [[each] for each in wanted]:
            group = Group(some)
            try:
                found = self._found(figure, group)
            except FAILURES as error:  # what was left could not be removed
                group.fail(error)
                found = {}
            for participant in some:
                error = group.failed.get(participant.key)
                said = self._keep(figure, participant, found.get(participant.key), error)
                print(f"run {run + 1}: {figure:<8} {participant.name:<24} {said}", flush=True)

    def _found(self, figure, group):
        if figure in TAKEN_OF_ALL:
            with self._prepared(group) as stages:
                return TAKEN_OF_ALL[figure](group, stages, self._amounts)
        found = defaultdict(dict)
        for take in TAKEN[figure]:
            for key, values in self._taken(take, group).items():
                found[key] |= values
        return found

    def _taken(self, take, group):
        with self._prepared(group) as stages:
            return group.each(lambda each: take(stages[each.key], self._amounts))

    @contextmanager
    def _prepared(self, group):
        """Give the stages of a group by their keys, each on an empty store."""
        with ExitStack() as stack:
            # All of them are empty before the first is prepared: some are the same.
            stores = group.each(lambda each: stack.enter_context(self._stores.empty(each)))
            stages = group.each(lambda each: self._stage(each, stores[each.key]))
            group.each(lambda each: stages[each.key].do("prepare"))
            yield stages

    def _stage(self, participant, store):
        return Stage(participant, self._pythons[participant.key], store, self._directory)

    def _keep(self, figure, participant, found, error):
        """Keep what was found or why nothing was; return what is said of it."""
        if error is not None:
            self._findings.fail(participant, str(error), figure)
            return f"failed: {error}"
        self._findings.add(participant, found)
        values = [value for value in _SAID if value in found]
        return ", ".join(f"{told(found[value])} {UNITS[value]}" for value in values)


def _chosen(kind, given, able):
    """Return the values of the keys that are given, with commas; all if none is."""
    keys = [key.strip() for key in given.split(",") if key.strip()]
    for key in keys:
        if key not in able:
            raise ChoiceError(f"There is no {kind} {key!r} here: choose from {', '.join(able)}.")
    return [able[key] for key in keys or able]

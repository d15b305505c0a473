"""The legs of a run: which tests on which database, by how many processes.

A run shows every promise once, on the database where it is most at stake, and leaves out what is
marked ``long`` (see tests.selection). With ``--all`` everything is run on both, and the store's
contract also on the oldest PostgreSQL that the wheel has.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from . import environment

STORE_TESTS = "tests/store"
DAEMON_TESTS = "tests/daemon"
BROWSER_TESTS = "tests/browser"
POOLER_TESTS = "tests/daemon/test_pgbouncer.py"
# The tests of what must not depend on any sentence.
WORDLESS_TESTS = (
    *(STORE_TESTS, DAEMON_TESTS, "tests/test_controls.py", "tests/test_enqueue.py"),
    *("tests/test_queue.py", "tests/test_registry.py", "tests/test_steering.py"),
)
# Options of pytest whose value is a path, but not one of what is to be run.
TAKE_A_PATH = {"--ignore", "--deselect", "--confcutdir", "--rootdir", "--basetemp", "-c"}
# How many processes run the tests of a leg, where it is run beside others.
WORKERS = {"sqlite": 2, "sqlite-daemon": 1, "postgres": 2, "postgres-daemon": 3, "postgres16": 1}
QUICK_WORKERS = 2
# What computes yields to what waits for a moment, and is to see it.
NICE = 5


@dataclass(frozen=True)
class Leg:
    """One run of pytest on one database.

    ``part`` says which, where there are more of a kind, and ``number`` which of those that
    share the tests. ``nice`` says how much it yields to the others.
    """

    kind: str
    title: str
    args: tuple[str, ...]
    part: str = ""
    number: int = 0
    nice: int = 0

    @property
    def group(self):
        return f"{self.kind}-{self.part}" if self.part else self.kind

    @property
    def name(self):
        return f"{self.group}-{self.number}" if self.number else self.group

    @property
    def results(self):
        """The file with the results of its tests (see tests.results)."""
        return environment.folder() / f"{self.name}.results"

    def chooses(self, path):
        """Whether what lies at ``path``, relative to the project, is among its tests."""
        own = environment.ROOT / path
        chosen = [Path(each.partition("::")[0]).resolve() for each in paths(self.args)]
        return not chosen or any(
            each.is_relative_to(own) or own.is_relative_to(each) for each in chosen
        )


def planned(args, *, only=None, everything=False, quick=False, at_once=False):
    """Return the legs of a run with these arguments for pytest; ``only`` are kinds of database."""
    # The environment may name a PostgreSQL.
    is_named = os.environ.get("DATABASE_URL", "").startswith("postgres")
    if quick:
        # On SQLite, which starts no server, unless another is asked for.
        args, only = ["--quick", *args], only or ["sqlite"]
    chosen = paths(args)
    legs = [Leg("sqlite", "SQLite", tuple(args)), Leg("postgres", "PostgreSQL", tuple(args))]
    of_store = [path for path in chosen if path.startswith(STORE_TESTS)]
    is_wanted = everything or "postgres16" in (only or ())
    if is_wanted and not is_named and not quick and (of_store or not chosen):
        rest = [arg for arg in args if arg not in chosen]
        of_contract = (*rest, *(of_store or [STORE_TESTS]))
        legs.append(Leg("postgres16", "PostgreSQL 16, store contract", of_contract))
    legs = [leg for leg in legs if not only or leg.kind in only]
    is_whole = not chosen and not is_named
    if not everything:
        legs = _shared_out(legs, is_whole=is_whole)
    if at_once and is_whole:
        if not quick:
            legs = [part for leg in legs for part in _parts(leg)]
        legs = [worker for leg in legs for worker in workers(leg, quick=quick)]
    return legs


def _shared_out(legs, *, is_whole):
    """Have each database leave to the other what need not be shown twice."""
    short = ("--short",) if is_whole else ()
    beside = {"sqlite": ("--beside=postgres",), "postgres": ("--beside=sqlite",)}
    if not beside.keys() <= {leg.kind for leg in legs}:
        beside = {}
    return [replace(leg, args=(*beside.get(leg.kind, ()), *short, *leg.args)) for leg in legs]


def _parts(leg):
    """Return a leg's tests of the daemon, and the others."""
    if leg.kind == "postgres16":
        return [replace(leg, nice=NICE)]
    return [
        replace(leg, args=(*leg.args, "--ignore", DAEMON_TESTS), nice=NICE),
        replace(leg, title=f"{leg.title}, daemon", args=(*leg.args, DAEMON_TESTS), part="daemon"),
    ]


def workers(leg, *, quick=False):
    """Return the legs that share the tests of this one, each on a database of its own."""
    count = QUICK_WORKERS if quick else WORKERS[leg.group]
    if count == 1:
        return [leg]
    # With "=", as pytest would take a folder that is there for what is to be run.
    shared = f"--share={environment.folder() / leg.group}-taken"
    return [replace(leg, args=(shared, *leg.args), number=number) for number in range(1, count + 1)]


def paths(args):
    """Return the arguments that say what is to be run."""
    return [
        arg
        for before, arg in zip(["", *args], args, strict=False)
        if before not in TAKE_A_PATH and Path(arg.partition("::")[0]).exists()
    ]

"""Tests of :mod:`benchmarks`: that they run and say what they are to say; not how fast."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from benchmarks.__main__ import NAMES
from benchmarks.core.against import Side
from benchmarks.peers.findings import Findings

from . import environment

KIND = "sqlite" if environment.kind() == "sqlite" else "postgres"
# Of everything a little. Looking for work often spares waiting for it.
SMALL = {
    "runs": 1,
    "tasks": 60,
    "single": 16,
    "samples": 3,
    "waiting": 50,
    "finished": 50,
    "dated": 20,
    "held": 20,
    "lanes": 20,
    "types": 2,
    "backlog": 20,
    "history": 20,
    "warm_up": 4,
    "seconds": 1,
    "settle": 0,
    "instances": 500,
    "claimed": 10,
    "pages": 3,
    "repeat": 2,
}
# All of them take a minute or so; a loaded machine takes many times as long.
PATIENCE = 1500
pytestmark = pytest.mark.timeout(PATIENCE + 100)
long = pytest.mark.long
OFTEN = "--set=POLL_EVERY=0.02"


def benchmarks(*args):
    """Run the command on the server of the tests; return what it did."""
    own = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    if KIND == "sqlite":
        own.pop("DATABASE_URL", None)
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *args],
        cwd=environment.ROOT,
        env=own,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def figures_of(folder, *args, statuses=(0,)):
    """Run the command on the database of the tests; return what it printed, and its documents."""
    file = folder / "figures.json"
    done = benchmarks(*args, f"--database={KIND}", f"--json={file}")
    assert done.returncode in statuses, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, json.loads(file.read_text())


def options(**given):
    """Return the options as a command line has them."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]


# What others are divided by; the rest stands for itself.
DIVISORS = {
    "drain": {"floor"},
    "enqueue": {"floor, 1 client", "floor, 8 clients"},
    "bulk": {"1,000 in a call / floor", "all in one call / floor"},
    "latency": {"floor, p50 from the call", "floor, p99 from its return"},
    "growth": {"50 FINISHED / 1,000 waiting", "2 Types / 1,000 waiting"},
    "horizon": {"the first tenth"},
}


# 1 says that a limit was exceeded: how long it took is no matter here.
ANY = (0, 1)


@long
def test_each_runs_and_writes_its_figures(tmp_path):
    printed, found = figures_of(tmp_path, OFTEN, *options(**SMALL), statuses=ANY)
    documents = {document["benchmark"]: document for document in found}
    assert documents.keys() == {*NAMES}
    for document in found:
        assert document["database"].startswith(KIND)
        assert {"atp", "Django", "Python"} < set(document["versions"])
        assert document["settings"]["runs"] == 1
        figures = [*document["median"].values(), *document["ratio"].values()]
        assert figures
        assert all(isinstance(value, (int, float)) for value in figures)
        assert DIVISORS.get(document["benchmark"], set()) <= set(document["ratio"])
    if KIND != "sqlite":
        for name, figure in (("bulk", "1,000 in a call"), ("enqueue", "enqueue")):
            assert documents[name]["median"][f"{figure}, rows inserted a task"] == 4
        assert documents["drain"]["median"]["drain, bytes of WAL a task"] > 0
    lists = documents["lists"]
    assert set(lists["queries"]) == set(lists["p95"]) == set(lists["median"])
    # Most on the overview, with what a scan suspects, what is held or limited, how much
    # of that is full, and who set it; which failures are new, and which downstreams fail.
    assert max(lists["queries"].values()) <= 23
    assert "links lead to page 3" in printed


# Benchmarks with options of their own, and a figure that each of them has.
APART = {
    "drain": (
        "runs=1 tasks=20 daemons=2 processes=1 warm-up=4 duration-ms=2",
        *("workers busy, %", "one daemon with 2 workers"),
    ),
    "failures": (
        "raising=70 redriven=10 failures=300 repeat=2 processes=1",
        *("redriven", "page failures, page 1", "API errors, page 1"),
    ),
    "limits shares": (
        "runs=1 tasks=30 daemons=2 processes=1 kills=1 seconds=1 burst=40 samples=3 every-ms=50 "
        "warm-up=2",
        *("one at a time, /s", "starts at 50/s, %", "wait in another Type, p95, ms"),
    ),
    "waiting": (
        "runs=1 clients=4 wait=1 arrive=1 alone=1",
        *("uvicorn, clients that could wait, ", "gunicorn, live, waiting, p50, ms"),
    ),
    "slots": (
        "runs=1 schedules=50 resting=5 processes=1 warm-up=4 seconds=1 settle=0",
        "the last of 50, s",
    ),
    "tailers": ("runs=1 records=30", "table / enqueue_many"),
    "graphs": (
        "runs=1 nodes=60 processes=1 warm-up=4",
        *("60 nodes submitted, s", "fan-out and fan-in / in no graph"),
    ),
    "soak": (
        "tasks=40 processes=1 warm-up=4 minutes=0.2 share=20 singly=50 set=PURGE_EVERY=0.5",
        *("claims, /s", "pickup, p50, ms", "pickup, p99, ms", "Instances, late / early"),
    ),
    "explain": ("runs=1 waiting=3000 lanes=3 repeat=2", "the last that waits, queries, "),
    "metrics": ("runs=1 waiting=3000 ended=1000 types=2 lanes=3 repeat=2", "a scrape, ms"),
}


@long
@pytest.mark.parametrize("names", APART)
def test_one_with_options_of_its_own(names, tmp_path):
    """G3, G9: of limits it would not come to an end if two had been at it at once."""
    given, *figures = APART[names]
    more = [f"--{option}" for option in given.split()]
    printed, documents = figures_of(tmp_path, *names.split(), OFTEN, *more, statuses=ANY)
    assert "not complete" not in printed
    found = [name for each in documents for name in (*each["median"], *each["ratio"])]
    assert [each for each in figures if not any(name.startswith(each) for name in found)] == []


@long
@pytest.mark.each_database
def test_a_fleet_of_which_one_dies(tmp_path):
    """G1, G3: it would not come to an end if two attempts had run at once, or one were lost."""
    small = options(runs=1, tasks=12, daemons=3, processes=1, duration_ms=300)
    quick = ["LEASE=4", "KILL_AFTER=3", "STATEMENT_TIMEOUT=2", "RENEW_EVERY=0.5", "SWEEP_EVERY=0.2"]
    given = [f"--set={each}" for each in quick]
    _, [document] = figures_of(tmp_path, "fleet", OFTEN, *small, *given)
    assert document["median"]["overlaps, "] == 0
    assert document["median"]["attempts lost with the daemon, "] >= 1


@long
@pytest.mark.skipif(not (environment.ROOT / ".git").exists(), reason="there are no commits")
def test_it_runs_beside_an_earlier_commit(tmp_path):
    small = options(runs=1, tasks=20)
    _, [document] = figures_of(tmp_path, "bulk", "--against=HEAD", *small)
    assert document["settings"]["tasks"] == 20
    commit, medians = document["earlier"]["commit"], document["earlier"]["median"]
    assert set(medians) == set(document["median"])
    assert document["ratio"][f"floor, /s, at {commit}"] > 0


def test_help_names_every_benchmark():
    done = benchmarks("--help")
    assert done.returncode == 0
    assert all(f"\n{name}:\n" in done.stdout for name in NAMES)


def test_ratios_are_those_of_each_run(tmp_path):
    """The machine becomes ever slower, and what is compared is as much quicker in each run."""
    now, then = (Side(name=name, folder=tmp_path) for name in ("now", "then"))
    for rates, rows in (((300, 200), (3, 0)), ((150, 100), (3, 1)), ((60, 40), (3, 1))):
        for side, rate, row in zip((now, then), rates, rows, strict=True):
            side.documents.append({"median": {"/s": rate, "rows": row, side.name: 1}})
    assert [now.ratio(figure, then) for figure in ("/s", "rows", "now")] == [1.5, 3, None]
    own, peer, failed = (SimpleNamespace(key=key) for key in ("atp", "peer", "failed"))
    findings = Findings([own, peer, failed], ["drain"])
    for rates in ((200, 100), (100, 50), (220, 110)):
        for participant, rate in zip((own, peer), rates, strict=True):
            findings.add(participant, {"drain": rate})
    findings.add(own, {"drain": 300})  # the peer has failed by now
    assert findings.median(own, "drain") == 210
    assert [findings.ratio(each, "drain") for each in (peer, own, failed)] == [2, None, None]

"""Tests that each benchmark runs and reports its figures, whatever the figures are."""

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
# Sizes that keep each benchmark short.
SMALL = (
    "runs=1 tasks=60 single=16 samples=3 waiting=50 finished=50 dated=20 held=20 lanes=20 types=2 "
    "backlog=20 history=20 warm-up=4 seconds=1 settle=0 instances=500 claimed=10 pages=3 repeat=2"
)
# In seconds. All benchmarks take about a minute, and many times as long on a loaded machine.
PATIENCE = 1500
pytestmark = pytest.mark.timeout(PATIENCE + 100)
long = pytest.mark.long
# Daemons that poll often start work sooner.
OFTEN = "--set=POLL_EVERY=0.02"


def figures_of(folder, *args, statuses=(0,)):
    """Run benchmarks on the database of the tests; return their output and JSON documents."""
    file = folder / "figures.json"
    left_out = ("DJANGO_SETTINGS_MODULE", "DATABASE_URL" if KIND == "sqlite" else None)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *args, f"--database={KIND}", f"--json={file}"],
        cwd=environment.ROOT,
        env={name: value for name, value in os.environ.items() if name not in left_out},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode in statuses, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, json.loads(file.read_text())


def options(given):
    """Return the arguments of a command line for options such as "runs=1 tasks=60"."""
    return [f"--{option}" for option in given.split()]


# Exit status 1 says that a limit of time was exceeded, which does not matter here.
ANY = (0, 1)


@long
def test_each_benchmark_runs_and_writes_its_figures(tmp_path):
    printed, found = figures_of(tmp_path, OFTEN, *options(SMALL), statuses=ANY)
    documents = {document["benchmark"]: document for document in found}
    assert documents.keys() == {*NAMES}
    for document in found:
        assert document["database"].startswith(KIND)
        assert {"atp", "Django", "Python"} < set(document["versions"])
        assert document["settings"]["runs"] == 1
        figures = [*document["median"].values(), *document["ratio"].values()]
        assert figures
        assert all(isinstance(value, (int, float)) for value in figures)
    lists = documents["lists"]
    assert set(lists["queries"]) == set(lists["p95"]) == set(lists["median"])
    assert max(lists["queries"].values()) <= 16
    assert "links lead to page 3" in printed


# The benchmarks with options of their own, and these options.
APART = {
    "drain": "runs=1 tasks=20 daemons=2 processes=1 warm-up=4 duration-ms=2",
    "failures": "raising=70 redriven=10 failures=300 repeat=2 processes=1",
    "limits shares": "runs=1 tasks=30 daemons=2 processes=1 kills=1 seconds=1 burst=40 samples=3 "
    "every-ms=50 warm-up=2",
    "waiting": "runs=1 clients=4 wait=1 arrive=1 alone=1",
    "slots": "runs=1 schedules=50 resting=5 processes=1 warm-up=4 seconds=1 settle=0",
    "tailers": "runs=1 records=30",
    "graphs": "runs=1 nodes=60 processes=1 warm-up=4",
    "soak": "tasks=40 processes=1 warm-up=4 minutes=0.2 share=20 singly=50 set=PURGE_EVERY=0.5",
    "explain": "runs=1 waiting=3000 lanes=3 repeat=2",
    "metrics": "runs=1 waiting=3000 ended=1000 types=2 lanes=3 repeat=2",
    "loops": "runs=1 concurrency=10 waits=20 requests=20 answer-ms=20 tasks=60 warm-up=4 samples=3 "
    "saves=40 processes=1",
    "pages": "instances=500 types=15 lanes=3 waiting=50 claimed=10 repeat=2 seconds=2",
}


@long
@pytest.mark.parametrize("names", APART)
def test_benchmark_with_its_own_options_reports_its_figures(names, tmp_path):
    """G3, G9: the benchmark of limits would not end if two attempts had run at once."""
    more = options(APART[names])
    printed, documents = figures_of(tmp_path, *names.split(), OFTEN, *more, statuses=ANY)
    assert "not complete" not in printed
    assert len(documents) == len(names.split())
    assert all(each["median"] for each in documents)


@long
@pytest.mark.each_database
def test_fleet_benchmark_completes_although_a_daemon_is_killed(tmp_path):
    """G1, G3: the benchmark would not end if an Instance were lost or executed twice at once."""
    given = options(
        "runs=1 tasks=12 daemons=3 processes=1 duration-ms=300 set=LEASE=4 set=KILL_AFTER=3 "
        "set=STATEMENT_TIMEOUT=2 set=RENEW_EVERY=0.5 set=SWEEP_EVERY=0.2"
    )
    _, [document] = figures_of(tmp_path, "fleet", OFTEN, *given)
    assert document["median"]["overlaps, "] == 0
    assert document["median"]["attempts lost with the daemon, "] >= 1


@long
@pytest.mark.skipif(not (environment.ROOT / ".git").exists(), reason="there are no commits")
def test_benchmark_can_compare_with_an_earlier_commit(tmp_path):
    given = options("against=HEAD runs=1 tasks=20")
    _, [document] = figures_of(tmp_path, "bulk", *given)
    assert document["ratio"][f"floor, /s, at {document['earlier']['commit']}"] > 0


def test_ratio_is_computed_within_each_run(tmp_path):
    """The rates fall from run to run, but the ratio of the two sides stays the same."""
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

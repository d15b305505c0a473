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


def benchmarks(*args, url=None):
    """Run the command, with this DATABASE_URL or the server of the tests; return what it did."""
    own = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    if url is not None:
        own["DATABASE_URL"] = url
    elif KIND == "sqlite":
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


def options(**given):
    """Return the options as a command line has them."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """All benchmarks in one run: what it printed, and each one's figures by its name."""
    file = tmp_path_factory.mktemp("benchmarks") / "figures.json"
    done = benchmarks(f"--database={KIND}", f"--json={file}", OFTEN, *options(**SMALL))
    # How long it took is no matter here: 1 says that a limit was exceeded.
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, {found["benchmark"]: found for found in json.loads(file.read_text())}


@long
@pytest.mark.parametrize("name", NAMES)
def test_it_runs_and_writes_its_figures(name, run):
    _, documents = run
    document = documents[name]
    assert document["database"].startswith(KIND)
    assert {"atp", "Django", "Python"} < set(document["versions"])
    assert document["settings"]["runs"] == 1
    assert all(
        document["settings"][option] == value
        for option, value in SMALL.items()
        if option in document["settings"]
    )
    assert document["median"]
    figures = [*document["median"].values(), *document["ratio"].values()]
    assert all(isinstance(value, (int, float)) for value in figures)


# What others are divided by; the rest stands for itself.
DIVISORS = {
    "drain": ["floor"],
    "enqueue": ["floor, 1 client", "floor, 8 clients"],
    "bulk": ["1,000 in a call / floor", "all in one call / floor"],
    "latency": ["floor, p50 from the call", "floor, p99 from its return"],
    "growth": ["50 FINISHED / 1,000 waiting", "2 Types / 1,000 waiting"],
    "horizon": ["the first tenth"],
}


@long
@pytest.mark.parametrize("name", DIVISORS)
def test_it_says_what_its_figures_are_divided_by(name, run):
    _, documents = run
    assert set(DIVISORS[name]) <= set(documents[name]["ratio"])


@long
def test_it_counts_what_a_task_costs_a_server(run):
    _, documents = run
    if KIND == "sqlite":
        pytest.skip("SQLite counts nothing")
    for name, figure in (("bulk", "1,000 in a call"), ("enqueue", "enqueue")):
        assert documents[name]["median"][f"{figure}, rows inserted a task"] == 4
    assert documents["drain"]["median"]["drain, bytes of WAL a task"] > 0


@long
def test_a_list_is_the_same_by_links_and_by_key(run):
    printed, documents = run
    document = documents["lists"]
    assert set(document["queries"]) == set(document["p95"]) == set(document["median"])
    # Most on the overview, with what a scan suspects, what is held or limited, how much
    # of that is full, and who set it; which failures are new, and which downstreams fail.
    assert max(document["queries"].values()) <= 23
    assert "links lead to page 3" in printed


@long
def test_failures_are_grouped_redriven_and_shown(tmp_path):
    file = tmp_path / "figures.json"
    given = {"raising": 70, "redriven": 10, "failures": 300, "repeat": 2, "processes": 1}
    done = benchmarks("failures", f"--database={KIND}", f"--json={file}", OFTEN, *options(**given))
    assert done.returncode in (0, 1), done.stderr
    [document] = json.loads(file.read_text())
    figures = {name.rpartition(", ")[0] for name in document["median"]}
    assert {"redriven", "page failures, page 1", "API errors, page 1"} <= figures


def test_daemons_and_sleeping_handlers(tmp_path):
    file = tmp_path / "figures.json"
    given = {"runs": 1, "tasks": 20, "daemons": 2, "processes": 1, "warm_up": 4}
    sleeping = options(**given, duration_ms=2)
    done = benchmarks("drain", f"--database={KIND}", f"--json={file}", OFTEN, *sleeping)
    assert done.returncode == 0, done.stderr
    [document] = json.loads(file.read_text())
    assert 0 < document["median"]["workers busy, %"] <= 100
    assert "one daemon with 2 workers" in document["ratio"]


@long
@pytest.mark.each_database
def test_a_fleet_of_which_one_dies(tmp_path):
    """G1, G3: it would not come to an end if two attempts had run at once, or one were lost."""
    file = tmp_path / "figures.json"
    small = options(runs=1, tasks=12, daemons=3, processes=1, duration_ms=300)
    quick = ["LEASE=4", "KILL_AFTER=3", "STATEMENT_TIMEOUT=2", "RENEW_EVERY=0.5", "SWEEP_EVERY=0.2"]
    given = [f"--set={each}" for each in quick]
    done = benchmarks("fleet", f"--database={KIND}", f"--json={file}", OFTEN, *small, *given)
    assert done.returncode == 0, done.stderr
    [document] = json.loads(file.read_text())
    assert document["median"]["overlaps, "] == 0
    assert document["median"]["attempts lost with the daemon, "] >= 1


@long
def test_limits_and_shares(tmp_path):
    """G3, G9: it would not come to an end if two had been at it at once."""
    file = tmp_path / "figures.json"
    small = options(
        runs=1,
        tasks=30,
        daemons=2,
        processes=1,
        kills=1,
        seconds=1,
        burst=40,
        samples=3,
        every_ms=50,
        warm_up=2,
    )
    done = benchmarks("limits", "shares", f"--database={KIND}", f"--json={file}", OFTEN, *small)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    limits, shares = json.loads(file.read_text())
    assert limits["median"]["one at a time, /s"] > 0
    assert limits["median"]["starts at 50/s, %"] > 0
    assert shares["median"]["wait in another Type, p95, ms"] > 0


@long
def test_clients_that_wait(tmp_path):
    file = tmp_path / "figures.json"
    small = options(runs=1, clients=4, wait=1, arrive=1, alone=1)
    done = benchmarks("waiting", f"--database={KIND}", f"--json={file}", *small)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    [document] = json.loads(file.read_text())
    assert document["median"]["uvicorn, clients that could wait, "] == 4
    assert document["median"]["gunicorn, live, waiting, p50, ms"] > 0


@long
def test_slots(tmp_path):
    file = tmp_path / "figures.json"
    small = options(runs=1, schedules=50, resting=5, processes=1, warm_up=4, seconds=1, settle=0)
    done = benchmarks("slots", f"--database={KIND}", f"--json={file}", OFTEN, *small)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    [document] = json.loads(file.read_text())
    assert document["median"]["the last of 50, s"] > 0


@long
def test_tailers(tmp_path):
    file = tmp_path / "figures.json"
    small = options(runs=1, records=30)
    done = benchmarks("tailers", f"--database={KIND}", f"--json={file}", *small)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    [document] = json.loads(file.read_text())
    assert document["ratio"]["table / enqueue_many"] > 0


@long
def test_graphs(tmp_path):
    file = tmp_path / "figures.json"
    small = options(runs=1, nodes=60, processes=1, warm_up=4)
    done = benchmarks("graphs", f"--database={KIND}", f"--json={file}", OFTEN, *small)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    [document] = json.loads(file.read_text())
    assert document["median"]["60 nodes submitted, s"] > 0
    assert "fan-out and fan-in / in no graph" in document["ratio"]


@long
def test_a_soak(tmp_path):
    """Too short for anything to be constant: it says what it has found."""
    file = tmp_path / "figures.json"
    small = options(tasks=40, processes=1, warm_up=4, minutes=0.2, share=20, singly=50)
    given = [f"--database={KIND}", f"--json={file}", "--set=PURGE_EVERY=0.5"]
    done = benchmarks("soak", *given, OFTEN, *small)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    [document] = json.loads(file.read_text())
    assert {"claims, /s", "pickup, p50, ms", "pickup, p99, ms"} < set(document["median"])
    assert "Instances, late / early" in document["ratio"]


@long
@pytest.mark.skipif(not (environment.ROOT / ".git").exists(), reason="there are no commits")
def test_it_runs_beside_an_earlier_commit(tmp_path):
    file = tmp_path / "figures.json"
    small = options(runs=1, tasks=20)
    done = benchmarks("bulk", "--against=HEAD", f"--database={KIND}", f"--json={file}", *small)
    assert done.returncode == 0, done.stderr
    [document] = json.loads(file.read_text())
    assert document["settings"]["tasks"] == 20
    commit, medians = document["earlier"]["commit"], document["earlier"]["median"]
    assert set(medians) == set(document["median"])
    assert document["ratio"][f"floor, /s, at {commit}"] > 0


def test_an_earlier_commit_is_compared_run_by_run(tmp_path):
    now, then = (Side(name=name, folder=tmp_path) for name in ("now", "then"))
    # The machine becomes ever slower, and the code of now is half as fast again in each run.
    for rates, rows in (((300, 200), (3, 0)), ((150, 100), (3, 1)), ((60, 40), (3, 1))):
        for side, rate, row in zip((now, then), rates, rows, strict=True):
            side.documents.append({"median": {"/s": rate, "rows": row, side.name: 1}})
    assert now.ratio("/s", then) == 1.5
    assert now.ratio("rows", then) == 3
    assert now.ratio("now", then) is None


def test_help_names_every_benchmark():
    done = benchmarks("--help")
    assert done.returncode == 0
    assert all(f"\n{name}:\n" in done.stdout for name in NAMES)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["drone"], "there is no benchmark 'drone': choose from"),
        (["--database=oracle"], "invalid choice"),
        (["--database=postgres"], "DATABASE_URL names another database"),
        (["bulk", "--set=STORE"], "'STORE' is not KEY=VALUE"),
        (["bulk", "--against=no-such-commit"], "no-such-commit"),
    ],
)
def test_what_cannot_be_run_is_told(args, told, tmp_path):
    done = benchmarks(*args, url=f"sqlite:///{tmp_path}/db.sqlite3")
    assert done.returncode == 2
    assert told in done.stderr


def test_a_peer_is_compared_with_what_atp_did_in_the_same_run():
    own, peer, failed = (SimpleNamespace(key=key) for key in ("atp", "peer", "failed"))
    findings = Findings([own, peer, failed], ["drain"])
    # The machine is half as fast in the second run, and ATP twice as fast as the peer in each.
    for rates in ((200, 100), (100, 50), (220, 110)):
        for participant, rate in zip((own, peer), rates, strict=True):
            findings.add(participant, {"drain": rate})
    findings.add(own, {"drain": 300})  # the peer has failed by now
    assert findings.median(own, "drain") == 210
    assert findings.ratio(peer, "drain") == 2
    assert findings.ratio(own, "drain") is None
    assert findings.ratio(failed, "drain") is None


def test_it_is_told_of_which_peer_atp_does_not_as_many_times_as_it_has_to():
    told = {"name": "", "figures": ("orm",), "versions": "", "store": "", "settings": ""}
    least = {"orm": 3}
    own, slow, quick = (
        SimpleNamespace(**told | {"key": key, "name": key, "least": least if key != "atp" else {}})
        for key in ("atp", "slow", "quick")
    )
    findings = Findings([own, slow, quick], ["orm"])
    for participant, rate in ((own, 400), (slow, 100), (quick, 200)):
        findings.add(participant, {"orm": rate})
    report = SimpleNamespace(exceeded=[], more={})
    findings.give(report)
    assert report.exceeded == ["atp is 2.00 times quick by orm, not 3"]


@long
def test_explanations(tmp_path):
    file = tmp_path / "figures.json"
    small = options(runs=1, waiting=3000, lanes=3, repeat=2)
    done = benchmarks("explain", f"--database={KIND}", f"--json={file}", *small)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    [document] = json.loads(file.read_text())
    assert 0 < document["median"]["the last that waits, queries, "] <= 8


@long
def test_metrics(tmp_path):
    file = tmp_path / "figures.json"
    small = options(runs=1, waiting=3000, ended=1000, types=2, lanes=3, repeat=2)
    done = benchmarks("metrics", f"--database={KIND}", f"--json={file}", *small)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    assert "not complete" not in done.stdout
    [document] = json.loads(file.read_text())
    assert document["median"]["a scrape, ms"] > 0

"""Tests of :mod:`benchmarks`: that they run and say what they are to say; not how fast."""

import json
import os
import subprocess
import sys

import pytest

from . import environment

KIND = "sqlite" if environment.kind() == "sqlite" else "postgres"


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
        timeout=100,
        check=False,
    )


SMALL = {
    "enqueue": ["--bulk=20", "--single=2"],
    "lists": ["--instances=500", "--waiting=120", "--claimed=10", "--pages=3", "--repeat=2"],
}


@pytest.mark.parametrize("name", SMALL)
def test_it_runs_and_writes_its_figures(name, tmp_path):
    file = tmp_path / "figures.json"
    done = benchmarks(name, f"--database={KIND}", f"--json={file}", *SMALL[name])
    # How long it took is no matter here: 1 says that a limit was exceeded.
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    [document] = json.loads(file.read_text())
    assert document["benchmark"] == name
    assert document["database"].startswith(KIND)
    assert {"atp", "Django", "Python"} < set(document["versions"])
    for option in SMALL[name]:
        option_name, value = option.removeprefix("--").split("=")
        assert document["settings"][option_name] == int(value)
    assert document["median"]
    assert document["ratio"]
    figures = [*document["median"].values(), *document["ratio"].values()]
    assert all(isinstance(value, float) and value > 0 for value in figures)
    if name == "lists":
        assert set(document["queries"]) == set(document["p95"]) == set(document["median"])
        assert max(document["queries"].values()) <= 12
        assert "links lead to page 3" in done.stdout


def test_help_names_every_benchmark():
    done = benchmarks("--help")
    assert done.returncode == 0
    assert all(f"\n{name}:\n" in done.stdout for name in SMALL)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["drone"], "there is no benchmark 'drone': choose from"),
        (["--database=oracle"], "invalid choice"),
        (["--database=postgres"], "DATABASE_URL names another database"),
    ],
)
def test_what_cannot_be_run_is_told(args, told, tmp_path):
    done = benchmarks(*args, url=f"sqlite:///{tmp_path}/db.sqlite3")
    assert done.returncode == 2
    assert told in done.stderr

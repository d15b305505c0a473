"""Fixtures: the clone, its wheel and sdist, and the project of the README."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environment import ROOT

from .readme import Walk

# What a clone does not have: virtual environments, caches, what was built.
MADE = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
# What a shell has that a person opens: paths, and how packages and their index are reached.
KNOWN = ("PATH", "HOME", "LANG", "TMP", "PIP_", "SSL_", "REQUESTS_", "http", "HTTP", "no_")


@pytest.fixture(scope="package")
def clone(tmp_path_factory):
    """A clone of ATP that is complete enough to build the package."""
    copy = tmp_path_factory.mktemp("atp") / "clone"
    return Path(shutil.copytree(ROOT, copy, ignore=lambda *found: MADE(*found) - {".ci"}))


@pytest.fixture(scope="package")
def shell():
    """A function that runs a command in a folder, without the environment of this test run."""
    environment = {name: value for name, value in os.environ.items() if name.startswith(KNOWN)}
    # The interpreter of this run is the machine's python3.
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"

    def run(command, folder):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        return done.stdout

    run.environment = environment
    return run


@pytest.fixture(scope="package")
def walk(clone, shell, tmp_path_factory):
    """The README's steps from an empty folder, all done; a daemon and a web server run."""
    with Walk(clone, shell, tmp_path_factory.mktemp("project")) as walk:
        walk.go()
        yield walk


@pytest.fixture(scope="package")
def dist(walk, clone):
    """The folder with the wheel and the sdist, which the first step of the README builds."""
    return clone / "dist"

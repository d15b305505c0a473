"""Other wall clocks: a small C library, compiled here and loaded before all others.

A daemon of the chaos suite gets a clock that is wrong; a run with ``--at MOMENT`` begins each test
at that moment.
"""

import ctypes
import os
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("clock.c")
AHEAD = "CLOCK_AHEAD"
AT = "ATP_TEST_AT"
SECOND = timedelta(seconds=1)


def compiled(folder):
    """Compile the library, and return its path."""
    library = folder / "clock.so"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return library


def shifted(library, seconds):
    """Return the environment of a process whose wall clock is so many seconds ahead."""
    return {"LD_PRELOAD": str(library), AHEAD: str(seconds)}


def beginning_at(moment, folder):
    """Return the environment of a run that begins each test at ``moment``."""
    return shifted(compiled(folder), 0) | {AT: moment.isoformat()}


def is_ours():
    """Whether the tests of this process set its clock."""
    return AT in os.environ


def put_ahead(seconds):
    """Put the clock of this process ahead by so many seconds more."""
    ahead = float(os.environ[AHEAD]) + seconds
    os.environ[AHEAD] = str(ahead)
    ctypes.CDLL(None).set_ahead(ctypes.c_double(ahead))


def wait_for_moment(now, fits, what):
    """Wait until the time that ``now()`` tells fits; where the clock is ours it is put ahead."""
    # Not of the helpers, which import ATP: this module is loaded before Django.
    from .helpers import wait_for

    if is_ours():
        while not fits(now()):
            put_ahead(1)
    # From 52 seconds before an hour to one minute after it, two minutes and more pass.
    wait_for(lambda: fits(now()), 300, what=what)


class Beginnings:
    """Begins each test at a moment, and its fixtures a second before.

    Whatever a test does that spans this moment spans the end of an hour, a year, a change of the
    clocks. Inside a test the clock never goes back.
    """

    def __init__(self, moment):
        self._moment = moment

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item):
        _set_to(self._moment - SECOND)
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item):
        if datetime.now(UTC) < self._moment:
            _set_to(self._moment)
        return (yield)


def configure(config):
    """Begin tests at the moment that the environment names, if it names one."""
    if is_ours():
        moment = datetime.fromisoformat(os.environ[AT])
        config.pluginmanager.register(Beginnings(moment))


def _set_to(moment):
    put_ahead(moment.timestamp() - time.time())

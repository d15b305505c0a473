"""Fixtures of the daemon's tests."""

import signal

import pytest

from atp import queue

from .harness import Atpd, Record

# A shell that runs the tests in the background has them ignore SIGINT, and what
# they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def atpd(tmp_path, transactional_db):
    """Start daemons: ``atpd("--drain", processes=1)``; whatever is left is ended afterwards."""
    queue.register_all()
    started = []

    def start(*args, **options):
        daemon = Atpd(tmp_path, *args, **options)
        started.append(daemon)
        return daemon

    yield start
    for daemon in started:
        daemon.destroy()


@pytest.fixture
def record(tmp_path):
    """A record that handlers write to."""
    return Record(tmp_path / "record.jsonl")


@pytest.fixture
def flag(tmp_path):
    """A file that handlers wait for; ``flag.touch()`` lets them go on."""
    return tmp_path / "flag"

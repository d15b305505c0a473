"""What holds for all of the daemon's tests."""

import signal

import pytest

from atp.states import State

from .scenario import wait_until

# A shell that runs the tests in the background has them ignore SIGINT, and what
# they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def begin(atpd, record, flag):
    """Start a daemon that runs an attempt until the flag is set.

    Returns the Instance, the daemon, and the line that the attempt has recorded.
    """

    def begin(type, *args, event="start", inputs=None, **options):
        instance = type.enqueue(path=str(record), until=str(flag), **(inputs or {}))
        daemon = atpd(*args, **{"processes": 1, **options})
        [line] = record.wait_for(event)
        wait_until(State.RUNNING, instance)
        return instance, daemon, line

    return begin

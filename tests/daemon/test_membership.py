"""Membership: what a failed call is taken for."""

import logging

import pytest
from django.db import DatabaseError, InterfaceError, OperationalError, ProgrammingError

from atp.daemon.dispatcher.core import Core
from atp.daemon.dispatcher.database_thread import Result
from atp.daemon.membership.identity import Identity
from atp.daemon.membership.membership import Membership


class Thread:
    def reconnect(self):
        pass


@pytest.fixture
def told(caplog):
    """Let a call fail with an error; returns what is logged of it."""
    core = Core(store=None, identity=Identity(1, (), ""), page=None, tell=print)
    membership = Membership(core, (Thread(),), None)

    def fail(error):
        with caplog.at_level(logging.DEBUG, "atp.daemon"):
            membership.failed(Result("claiming", None, error=error))
        return caplog.records[-1]

    return fail


@pytest.mark.parametrize("error", [OperationalError, InterfaceError, ConnectionResetError])
def test_failure_of_the_database_is_told_in_a_line(told, error):
    assert told(error("gone")).exc_info is None


def test_connection_that_is_lost_while_psycopg2_waits_is_told_in_a_line(told):
    """Of that it says no more than DatabaseError (G11)."""
    words = "server closed the connection unexpectedly\n\tThis probably means…"
    assert told(DatabaseError(words)).exc_info is None


@pytest.mark.parametrize("error", [ProgrammingError, ZeroDivisionError])
def test_fault_of_ours_is_told_with_its_traceback(told, error):
    assert told(error("wrong")).exc_info


def test_what_goes_on_failing_is_said_again(told, monkeypatch):
    """As a pool that has no connection left, while the daemon joins again and again."""
    first = told(OperationalError("none left"))
    assert told(OperationalError("none left")) is first
    monkeypatch.setattr("atp.daemon.membership.membership.SAY_AGAIN", 0.0)
    assert told(OperationalError("none left")) is not first

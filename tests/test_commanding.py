"""``queue.command`` and ``queue.get_daemon``."""

from functools import partial
from uuid import uuid4

import pytest

from atp import commands, queue
from atp.commands import Mode
from atp.exceptions import InvalidOption, UnknownDaemon


def test_a_daemon_by_uuid_or_by_name(world, host):
    for name in (host.uuid, str(host.uuid), str(host.uuid).upper(), "host:1"):
        assert queue.get_daemon(name) == host.row
    again = world.host("tests.echo")
    assert queue.get_daemon("host:1") == again.row  # the newest of that name


def test_a_daemon_or_an_order_that_there_is_not(world, host):
    """G13."""
    odd = "", "x", "host", "host:", "host:2", "host:١", "host:999999999999", "\x00:1", uuid4()
    for name in odd:
        with pytest.raises(UnknownDaemon, match="There is no daemon"):
            queue.get_daemon(name)
        with pytest.raises(UnknownDaemon):
            queue.command(name, "quiet")
    with pytest.raises(InvalidOption, match="Did you mean 'quiet'"):
        queue.command(host.uuid, "quite")
    assert host.row.request == ""


def test_nothing_leads_out_of_stopping():
    for mode in Mode:
        for request in ("", "quiet", "stop", "unknown"):
            stops = mode == Mode.STOPPING or request == "stop"
            assert (commands.mode_after(mode, request) == Mode.STOPPING) == stops


def test_who_it_is_has_to_be_text_for_the_log(world, host):
    """G13: the same for gates and limits, and nothing is written."""
    [identifier, *_] = host.types
    for by in (5, None, "\x00", "x" * 300):
        for verb, *given in (
            *((queue.command, host.uuid, "quiet"), (queue.hold,), (queue.drop, identifier)),
            *((queue.open_gate,), (queue.unlimit, identifier)),
            (partial(queue.limit, max_running=1), identifier),
        ):
            with pytest.raises(InvalidOption, match=r"^by"):
                verb(*given, by=by)
    assert host.row.request == ""
    assert not queue.gates()
    assert not queue.limits()

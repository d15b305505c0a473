"""The store contract: command, what a daemon is told by request on its row."""

from itertools import product

import pytest

from atp import commands
from atp.commands import DaemonCommand, Mode
from atp.exceptions import IllegalOrder, UnknownDaemon
from atp.models import Daemon, Kind, LogRecord

from ..helpers import at_once
from .world import LEASE, ONE


def told(row):
    """The orders that a daemon was given, as (who, order), oldest first."""
    about = LogRecord.objects.about(f"daemon:{row}")
    return [(r.who, r.detail) for r in about if r.kind == Kind.ORDER]


def in_mode(world, mode):
    """Return a daemon that does this, and has said so."""
    host = world.host()
    orders = {Mode.QUIET: DaemonCommand.QUIET, Mode.STOPPING: DaemonCommand.STOP}
    if mode in orders:
        world.store.daemons.command(host.uuid, orders[mode], who="before")
    world.store.daemons.renew(host.uuid, lease=LEASE, mode=mode)
    return host


def test_each_order_in_each_mode(world):
    """What makes no difference is refused with what the daemon is doing, and not logged."""
    for mode, order in product(Mode, DaemonCommand):
        with world.case((mode, order)):
            host = in_mode(world, mode)
            sources, aim = commands.MODE_CHANGES[order]
            before = (host.row.request, told(host.row))
            if mode in sources:
                row = world.store.daemons.command(host.uuid, order, who="ann")
                assert (row.request, host.row.request) == (commands.REQUESTS[order],) * 2
                assert (host.row.aim, host.row.mode) == (aim, mode)
                assert told(host.row)[-1] == ("ann", order)
                continue
            with pytest.raises(IllegalOrder, match=f"is {mode}") as caught:
                world.store.daemons.command(host.uuid, order, who="ann")
            assert (caught.value.mode, caught.value.order) == (mode, order)
            assert (host.row.request, told(host.row)) == before


def test_the_same_again_before_it_has_acted(world, host):
    """Of two operators one is told what the other has done."""
    world.store.daemons.command(host.uuid, DaemonCommand.QUIET, who="ann")
    with pytest.raises(IllegalOrder, match="has been told to go quiet"):
        world.store.daemons.command(host.uuid, DaemonCommand.QUIET, who="bob")
    world.store.daemons.command(host.uuid, DaemonCommand.RESUME, who="bob")
    assert (host.row.request, host.row.aim) == ("", Mode.RUNNING)
    world.store.daemons.command(host.uuid, DaemonCommand.STOP, who="ann")
    with pytest.raises(IllegalOrder, match="has been told to stop"):
        world.store.daemons.command(host.uuid, DaemonCommand.RESUME, who="bob")
    assert [who for who, _ in told(host.row)] == ["ann", "bob", "ann"]


def test_renewal_and_outlook_bring_it(world):
    host, other, daemons = world.host(), world.host(), world.store.daemons
    daemons.command(host.uuid, DaemonCommand.QUIET)
    for daemon, request in ((host.uuid, "quiet"), (other.uuid, "")):
        assert daemons.outlook([ONE], daemon=daemon).request == request
        assert daemons.renew(daemon, lease=LEASE).request == request
    daemons.leave(host.uuid)
    assert daemons.outlook([ONE], daemon=host.uuid).request is None
    assert daemons.outlook([ONE]).request is None


def test_it_goes_on_to_the_next_identity(world):
    host = in_mode(world, Mode.QUIET)
    new = world.host(old=host.uuid)
    assert new.joined.request == "quiet"
    assert (new.row.request, new.row.aim) == ("quiet", Mode.QUIET)
    new.close()  # again, as when the answer got lost, after the old row has gone
    assert new.join(old=host.uuid).request == "quiet"
    world.store.daemons.command(new.uuid, DaemonCommand.RESUME)
    new.close()
    assert new.join(old=host.uuid).request == ""
    assert world.host(old=new.uuid).row.request == ""
    # What a daemon knows counts where another has taken its row away: it was cut off.
    lost = in_mode(world, Mode.QUIET)
    lost.lose_lease()
    world.store.daemons.sweep()
    assert world.host(old=lost.uuid, request="quiet").row.request == "quiet"


@pytest.mark.django_db(transaction=True)
def test_many_operators_at_once(world, host):
    """Of the same order one gets through, and the others are told."""
    outcomes = at_once(*[lambda: world.store.daemons.command(host.uuid, DaemonCommand.QUIET)] * 4)
    done = [outcome for outcome in outcomes if isinstance(outcome, Daemon)]
    refused = [outcome for outcome in outcomes if isinstance(outcome, IllegalOrder)]
    assert (len(done), len(refused)) == (1, 3)
    assert len(told(host.row)) == 1


@pytest.mark.django_db(transaction=True)
def test_a_command_and_a_new_identity_do_not_meet(world):
    """Either the new identity has it, or whoever said so is told that the old one is gone."""
    for _ in range(5):
        host = world.host()
        outcome, new = at_once(
            lambda h=host: world.store.daemons.command(h.uuid, DaemonCommand.QUIET),
            lambda h=host: world.host(old=h.uuid),
        )
        is_done = isinstance(outcome, Daemon)
        assert is_done or isinstance(outcome, UnknownDaemon)
        assert new.row.request == new.joined.request == ("quiet" if is_done else "")

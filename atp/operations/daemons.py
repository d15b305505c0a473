"""Commands to daemons, and the scan for states that should never be."""

from datetime import datetime
from uuid import UUID

from ..commands import Order
from ..conf import settings
from ..exceptions import InvalidOption, UnknownDaemon
from ..models import Daemon
from ..options import instant
from ..store import get_store
from ..store.findings import NOWHERE, Cursor, Finding
from ..text import did_you_mean
from .base import check_by, needs_tables

# The verbs that send orders to daemons; callers use them through :mod:`atp.queue`.


@needs_tables
def get_daemon(name: UUID | str) -> Daemon:
    """Return the Daemon with this uuid or this ``host:pid``. Raises UnknownDaemon."""
    # A lost daemon and a newer one may have the same pid: take the newest.
    rows = Daemon.objects.using(settings.DATABASE).order_by("-pk")
    text = str(name)
    try:
        found = rows.filter(uuid=UUID(text))
    except ValueError:
        host, _, pid = text.rpartition(":")
        is_pid = pid.isascii() and pid.isdecimal() and len(pid) < 10
        found = rows.filter(host=host, pid=int(pid)) if is_pid and host.isprintable() else ()
    for daemon in found:
        return daemon
    known = [str(row) for row in rows]
    raise UnknownDaemon(
        f"There is no daemon {text}: it has left, or never was.{did_you_mean(text, known)}"
    )


@needs_tables
def command(daemon: Daemon | UUID | str, order: Order | str, *, by: str = "") -> Daemon:
    """Order a daemon to go quiet, to resume or to stop; return its row.

    The order is written to the row of the daemon. ``daemon`` is a Daemon, its uuid or its
    ``host:pid``; ``order`` is "quiet", "resume" or "stop". The daemon acts on it within a second
    or two, and then changes its ``mode``. Raises UnknownDaemon; InvalidOption for an unknown order;
    or IllegalOrder if the daemon does that already, is stopping, or is lost.
    """
    check_by(by)
    if order not in Order.values:
        raise InvalidOption(
            f"order={order!r}: must be one of {', '.join(Order.values)}."
            f"{did_you_mean(str(order), Order.values)}"
        )
    uuid = daemon.uuid if isinstance(daemon, Daemon) else get_daemon(daemon).uuid
    return get_store().command(uuid, Order(order), who=by)


# Scan the queue for inconsistent states, which should never occur (ATF).


@needs_tables
def scan(*, repair: bool = True, by: str = "") -> list[Finding]:
    """Scan the whole queue for inconsistent states; return a list of Findings.

    Findings that can be repaired safely are repaired, unless ``repair`` is False. The time grows
    with the number of Instances; daemons run the same scan in portions.
    """
    found: dict[tuple[object, ...], Finding] = {}
    cursor = None
    while cursor != Cursor():
        scanned = get_store().scan(cursor, who=by, repair=repair)
        found |= {finding.key: finding for finding in scanned.findings}
        cursor = scanned.cursor
    return list(found.values())


@needs_tables
def suspicions(*, now: datetime | None = None) -> list[Finding]:
    """Return the Findings that indexes show quickly; nothing is repaired.

    ``now`` is the database's time, if the caller knows it.
    """
    return list(get_store().scan(NOWHERE, repair=False, now=instant("now", now)).findings)

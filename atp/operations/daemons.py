"""Operations on daemons: find them, command them, and scan the queue for inconsistent states."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import DatabaseError

from ..commands import DaemonCommand
from ..conf import settings
from ..exceptions import IllegalOrder, InvalidOption, UnknownDaemon
from ..models import Daemon
from ..options import resolve_time
from ..store import get_store
from ..store.facts import NOWHERE, Cursor, Finding, OpenTransaction
from ..text import did_you_mean
from .base import check_actor, needs_tables


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
        f"There is no daemon {text}: it has ended, or never existed.{did_you_mean(text, known)}"
    )


@needs_tables
def command(daemon: Daemon | UUID | str, order: DaemonCommand | str, *, by: str = "") -> Daemon:
    """Command a daemon to go quiet (claim no more Tasks), to resume or to stop.

    ``daemon`` is a Daemon, its uuid or its ``host:pid``; ``order`` is "quiet", "resume" or "stop".
    This writes the command to the row of the daemon and returns the row as a Daemon. The daemon
    obeys within a second or two, and then changes its ``mode``. Raises UnknownDaemon. Raises
    InvalidOption if the command is unknown, and IllegalOrder if the daemon obeys the command
    already, is stopping, or is lost.
    """
    check_actor(by)
    if order not in DaemonCommand.values:
        raise InvalidOption(
            f"order={order!r}: must be one of {', '.join(DaemonCommand.values)}."
            f"{did_you_mean(str(order), DaemonCommand.values)}"
        )
    uuid = daemon.uuid if isinstance(daemon, Daemon) else get_daemon(daemon).uuid
    return get_store().daemons.command(uuid, DaemonCommand(order), who=by)


@needs_tables
def end_session(pid: int, *, by: str = "") -> OpenTransaction:
    """End a session of the database that keeps daemons or other sessions waiting.

    ``pid`` is its process on the database server. Its transaction is rolled back, and is returned.
    Raises InvalidOption if no such session blocks others now, or if the user of this process's
    connection may not end it. SQLite does not tell its sessions.
    """
    check_actor(by)
    try:
        ended = get_store().end_session(pid, who=by)
    except DatabaseError as error:
        raise InvalidOption(
            f"pid={pid}: the database refuses to end this session: {error}"
        ) from error
    if ended is None:
        raise InvalidOption(f"pid={pid}: no session with this process keeps others waiting now.")
    return ended


def find_daemons(host: str | None = None) -> list[Daemon]:
    """Return the daemons of a host, or all for None, those running longest first.

    Raises UnknownDaemon if there are none.
    """
    rows = list(Daemon.objects.using(settings.DATABASE).order_by("started", "pk"))
    found = [row for row in rows if host in (None, row.host)]
    if not found and host is None:
        raise UnknownDaemon("There is no daemon.")
    if not found:
        hint = did_you_mean(host or "", {row.host for row in rows})
        raise UnknownDaemon(f"There is no daemon on host {host!r}.{hint}")
    return found


@dataclass(frozen=True, kw_only=True)
class CommandedDaemons:
    """The daemons that were told a command, and pairs of those that were not, with the reason."""

    told: tuple[Daemon, ...]
    left_alone: tuple[tuple[Daemon, str], ...]


@needs_tables
def command_all(
    order: DaemonCommand | str, *, host: str | None = None, by: str = ""
) -> CommandedDaemons:
    """Command all daemons of a host, or all daemons for None, as :func:`command` does.

    A daemon for which the command would change nothing, or that is lost, is left alone. Raises
    UnknownDaemon if there are no daemons, and InvalidOption if the command is unknown.
    """
    told, left_alone = [], []
    for row in find_daemons(host):
        try:
            told.append(command(row, order, by=by))
        except (IllegalOrder, UnknownDaemon) as error:
            left_alone.append((row, str(error)))
    return CommandedDaemons(told=tuple(told), left_alone=tuple(left_alone))


@needs_tables
def scan(*, repair: bool = True, by: str = "") -> list[Finding]:
    """Scan the whole queue for inconsistent states, which should never occur (ATF).

    Returns a list of Findings. Unless ``repair`` is False, this also repairs the states that can be
    repaired safely. A scan takes longer the more Instances there are. Daemons run the same scan in
    portions.
    """
    found: dict[tuple[object, ...], Finding] = {}
    cursor = None
    while cursor != Cursor():
        scanned = get_store().upkeep.scan(cursor, who=by, repair=repair)
        found |= {finding.key: finding for finding in scanned.findings}
        cursor = scanned.cursor
    return list(found.values())


@needs_tables
def suspicions(*, now: datetime | None = None) -> list[Finding]:
    """Return Findings for the inconsistent states that quick index queries find; repair nothing.

    ``now`` is the current time of the database; if it is None, this reads the time.
    """
    return list(
        get_store().upkeep.scan(NOWHERE, repair=False, now=resolve_time("now", now)).findings
    )

"""The work that there is for a daemon; and transactions that may be in its way."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """The work that there is.

    ``due`` is the time until the first waiting Task is due, in seconds: zero or less if
    one is due already, None if none waits. Tasks behind a gate do not count, nor those of
    a limit that has no room. ``late`` says that a Task was not started before its
    ``start_before``, ``lost`` that the lease of another daemon is over, ``drops`` that a
    Task waits where a gate drops it. ``planned`` is the time until the first slot of a
    schedule is due, as ``due``. ``graphs`` says that a graph lives, or that a node is
    left to fail. ``request`` is the order on the row of the daemon
    that asks, None if there is no such row.
    """

    due: float | None = None
    late: bool = False
    lost: bool = False
    drops: bool = False
    planned: float | None = None
    graphs: bool = False
    request: str | None = None


@dataclass(frozen=True, kw_only=True)
class OpenTransaction:
    """A transaction that is open ``since`` a time, in the session of a process of the server.

    ``application`` and ``user`` are as the server tells them. ``waits_for_it`` is the number of
    sessions that wait for one of its locks.
    """

    pid: int
    application: str
    user: str
    since: datetime
    waits_for_it: int = 0

"""The work that there is for a daemon, and transactions that may be in its way."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """The work that there is for a daemon.

    ``due`` is the number of seconds until the first waiting Task is due: zero or less if one is due
    already, None if none waits. Tasks behind a gate do not count, and neither do Tasks of a limit
    without room. ``late`` says that a Task has missed its ``start_before``. ``lost`` says that the
    lease of another daemon is over. ``drops`` says that a Task waits behind a dropping gate.
    ``planned`` is the number of seconds until the first slot of a schedule is due. ``graphs`` says
    that a graph is live, or that a node still has to be failed. ``request`` is the order on the row
    of the daemon that asks; None if there is no such row.
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
    """A transaction that has been open ``since`` a time, in a session of the server.

    ``pid`` is the session's process. ``application`` and ``user`` are given by the server.
    ``statement_since`` is when its last statement began. Both times are None if this user may not
    see them. ``waits_for_it`` is the number of sessions that wait for one of its locks. ``locked``
    is what daemons cannot write before it ends: the name of a table, or ROW for the row of the
    Task that was asked about; "" if that is not known.
    """

    ROW: ClassVar[str] = "row"

    pid: int
    application: str
    user: str
    since: datetime | None
    statement_since: datetime | None = None
    waits_for_it: int = 0
    locked: str = ""

"""What a session in the database does."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """A session, from PostgreSQL's view pg_stat_activity.

    ``state``, ``wait_type`` and ``wait`` are its columns state, wait_event_type and wait_event; ""
    is none. Its last statement began ``seconds`` ago, None if it has run none. ``blockers`` are the
    pids of the sessions whose locks it waits for.
    """

    pid: int
    state: str
    wait_type: str
    wait: str
    seconds: float | None
    blockers: tuple[int, ...]

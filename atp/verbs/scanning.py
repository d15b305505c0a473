"""Scan the queue for inconsistent states, which should never occur (ATF)."""

from datetime import datetime

from ..store import get_store
from ..store.findings import NOWHERE, Cursor, Finding
from ..words.options import instant
from .migrated import needs_tables


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

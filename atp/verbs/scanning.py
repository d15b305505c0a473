"""Scanning: the search for what should never be (ATF)."""

from datetime import datetime

from ..store import get_store
from ..store.findings import NOWHERE, Cursor, Finding


def scan(*, repair: bool = True, by: str = "") -> list[Finding]:
    """Look at the whole queue for what should never be, and return the list of Findings.

    What is safe to mend is mended, unless ``repair`` is off. It takes the
    longer the more Instances there are; daemons do the same a part at a time.
    """
    found: dict[tuple[object, ...], Finding] = {}
    cursor = None
    while cursor != Cursor():
        scanned = get_store().scan(cursor, who=by, repair=repair)
        found |= {finding.key: finding for finding in scanned.findings}
        cursor = scanned.cursor
    return list(found.values())


def suspicions(*, now: datetime | None = None) -> list[Finding]:
    """Return the Findings that indexes tell at once, with nothing mended.

    ``now`` is the database's time, if that is known.
    """
    return list(get_store().scan(NOWHERE, repair=False, now=now).findings)

"""The column of the log that says what happened, which earlier commits call ``event``."""

from importlib.util import find_spec
from pathlib import Path


def _column():
    # Django's models cannot be asked: statements are made before it is set up.
    rows = Path(find_spec("atp").origin).parent / "rows" / "log.py"
    return "kind" if rows.exists() and "kind = " in rows.read_text() else "event"


KIND = _column()

"""The column ``own`` of an Instance: a small JSON object of values for this Instance alone.

Most Instances have none: then the column is NULL, takes no room, and nobody reads it.
"""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

# The keys of the object. Times are in seconds.
TIMEOUT, MAX_RETRIES, UNIQUE = "timeout", "max_retries", "unique"
# The Instance's hooks; and, if it is a hook itself, the uuid of the Instance that ended.
HOOKS, HOOK_OF = "hooks", "hook_of"
# The values that the enqueue saved for the handler, by carrier (atp.middleware).
CARRIED = "carried"


def of(**values: Any) -> str | None:
    """Return the values that are not None as JSON text; None if there are none."""
    given = {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in values.items()
        if value is not None
    }
    return json.dumps(given, separators=(",", ":")) if given else None


def read(text: str | None) -> dict[str, Any] | None:
    """Return the object that a text holds; None for None."""
    return None if text is None else json.loads(text)


def timeout(own: Mapping[str, Any]) -> timedelta | None:
    """Return the Instance's own time-out; None if it has none."""
    seconds = own.get(TIMEOUT)
    return None if seconds is None else timedelta(seconds=seconds)

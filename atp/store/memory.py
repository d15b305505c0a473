"""The memory that a daemon keeps between its claims, and the claiming daemon itself."""

import time
from dataclasses import dataclass, field
from uuid import UUID

from .rotation import Rotation

# In seconds: while there is other work, a Type found empty is not looked at again for so long.
FULL_FOR = 0.05


class FullTypes:
    """The limited Types that had nothing to claim lately."""

    def __init__(self):
        # The time of the last such claim, by Type, on the monotonic clock.
        self._found_at = {}
        # The Types whose limits another session is known to keep locked.
        self.blocked = set()

    def found(self, type):
        """Note that nothing could be claimed of this Type."""
        self._found_at[type] = time.monotonic()

    def not_lately(self, types):
        """Return the Types that may have room: all but those found full a moment ago.

        A claim looks at the others only if there is nothing else to do.
        """
        before = time.monotonic() - FULL_FOR
        return [type for type in types if self._found_at.get(type, 0.0) < before]

    def not_blocked_lately(self, types):
        """Return the Types whose limits were not found locked a moment ago."""
        tried = {*self.not_lately(types)}
        return [type for type in types if type in tried or type not in self.blocked]


class ClaimMemory:
    """The memory of a daemon from one claim to the next.

    ``rotation`` says whose turn it is. ``limited`` are the Types known to have a limited lane. A
    claim without a memory finds the same Tasks, but cannot take turns with earlier claims.
    """

    def __init__(self):
        self.rotation = Rotation()
        self.limited = ()
        self.full = FullTypes()
        self._shortcuts = {}

    def shortcut(self, kind):
        """Return the shortcut of this class; each store has shortcuts of its own."""
        found = self._shortcuts.get(kind)
        if found is None:
            found = self._shortcuts[kind] = kind()
        return found


@dataclass(frozen=True, slots=True)
class Claimant:
    """A daemon that claims; with ``careful`` it waits for no lock of another session."""

    daemon: UUID
    memory: ClaimMemory = field(default_factory=ClaimMemory)
    careful: bool = False

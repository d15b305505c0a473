"""The memory that a daemon has of its claims, and the daemon that claims."""

import time
from dataclasses import dataclass, field
from uuid import UUID

from .rotation import Rotation

# While there is other work, a Type that had nothing to claim is left alone for so long, in
# seconds.
FULL_FOR = 0.05


class FullTypes:
    """The limited Types of which nothing could be claimed."""

    def __init__(self):
        # When that was found last, by Type, on the monotonic clock.
        self._found_at = {}
        # The Types of which somebody keeps a limit locked, as far as is known.
        self.blocked = set()

    def found(self, type):
        """Nothing could be claimed of this Type."""
        self._found_at[type] = time.monotonic()

    def not_lately(self, types):
        """Return the Types that may have room: all but those found full a moment ago.

        The others are looked at when there is nothing else to be done.
        """
        before = time.monotonic() - FULL_FOR
        return [type for type in types if self._found_at.get(type, 0.0) < before]

    def not_blocked_lately(self, types):
        """Return the Types but for those whose limits were found locked a moment ago."""
        tried = {*self.not_lately(types)}
        return [type for type in types if type in tried or type not in self.blocked]


class ClaimMemory:
    """The memory of a daemon from one claim to the next.

    ``rotation`` says whose turn it is. ``limited`` are the Types of which something is
    limited, as far as is known. A claim without a memory claims just as well, but it cannot
    take turns with those before it.
    """

    def __init__(self):
        self.rotation = Rotation()
        self.limited = ()
        self.full = FullTypes()
        self._shortcuts = {}

    def shortcut(self, kind):
        """Return the shortcut of this class, which a store takes in its own way."""
        found = self._shortcuts.get(kind)
        if found is None:
            found = self._shortcuts[kind] = kind()
        return found


@dataclass(frozen=True, slots=True)
class Claimant:
    """A daemon that claims; ``careful`` says that it waits for no lock of others."""

    daemon: UUID
    memory: ClaimMemory = field(default_factory=ClaimMemory)
    careful: bool = False

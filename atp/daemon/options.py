"""The options with which a daemon runs."""

import fnmatch
import os
import socket
from dataclasses import dataclass, field
from functools import lru_cache

# The number of Types that are named in the first line of the log.
NAMED = 10


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of ``manage.py atpd``. ``grace`` is in seconds.

    ``max_memory_per_worker`` is in bytes: what a worker may have before it is replaced.
    It limits no attempt: that is what a Type's ``max_memory`` does.
    """

    processes: int = field(default_factory=lambda: os.cpu_count() or 1)
    types: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    drain: bool = False
    grace: float = 30.0
    max_tasks_per_worker: int | None = None
    max_memory_per_worker: int | None = None
    reload: bool = False

    def served(self, registry):
        """Return the names that this daemon claims Tasks of: of declared Types, now or formerly.

        A Type that is served under one of its names is served under all but those excluded.
        """
        wanted = set()
        for declared in registry:
            if not self.types or any(_matches(name, self.types) for name in declared.names):
                wanted |= set(declared.names)
        return tuple(sorted(name for name in wanted if not _matches(name, self.exclude)))


def _matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


@lru_cache
def hostname():
    """Return the name by which this host's daemons are known.

    With a colon and a pid behind it, it is the ``who`` of a log record.
    """
    return socket.gethostname()[:190]


def named(types):
    """Return the Types in words, the first of them if there are many."""
    if len(types) > NAMED:
        return f"{', '.join(types[:NAMED])} and {len(types) - NAMED} more"
    return ", ".join(types) or "none"

"""How a daemon was told to run."""

import fnmatch
import os
import socket
from dataclasses import dataclass, field
from functools import lru_cache


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

    def served(self, identifiers):
        """Return those of the Types that this daemon serves, sorted."""
        return tuple(
            sorted(
                name
                for name in identifiers
                if (not self.types or _matches(name, self.types))
                and not _matches(name, self.exclude)
            )
        )


def _matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


@lru_cache
def hostname():
    """Return the name by which this host's daemons are known."""
    return socket.gethostname()[:255]

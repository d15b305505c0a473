"""The options with which a daemon runs."""

import fnmatch
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from ..placement import Amounts, Labels, lacking

if TYPE_CHECKING:
    from ..operations.registry import Declaration

# The number of Types that are named in the first line of the log.
NAMED = 10


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of ``manage.py atpd``. ``grace`` and ``linger`` are in seconds.

    A worker is replaced when it uses more than ``max_memory_per_worker`` bytes. That limits no
    attempt; a Type's ``max_memory`` does. ``labels`` and ``capacity`` are those of the host. With
    an ``executor``, attempts run where that engine has them run. ``loops`` is the number of loops
    for Types with a concurrency; None is one loop if such a Type is served.
    """

    processes: int = field(default_factory=lambda: os.cpu_count() or 1)
    loops: int | None = None
    types: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    drain: bool = False
    linger: float = 0.0
    grace: float = 30.0
    max_tasks_per_worker: int | None = None
    max_memory_per_worker: int | None = None
    reload: bool = False
    executor: str = ""
    labels: Labels = field(default_factory=dict)
    capacity: Amounts = field(default_factory=dict)

    def named(self, registry: "Iterable[Declaration]") -> "list[Declaration]":
        """Return the Types of which a name matches, whatever they need of the host."""
        return [
            declared
            for declared in registry
            if not self.types or any(_matches(name, self.types) for name in declared.names)
        ]

    def served(self, registry: "Iterable[Declaration]") -> tuple[str, ...]:
        """Return the current and former names of the Types whose Tasks this daemon claims.

        If one name of a Type matches, the Type is served under all its names that are not
        excluded. A Type that needs more than the host has is not served.
        """
        wanted: set[str] = set()
        for declared in self.named(registry):
            is_ours = declared.executor == self.executor and not self._lacks(declared)
            if is_ours and (not declared.concurrency or self.loops != 0):
                wanted |= set(declared.names)
        return tuple(sorted(name for name in wanted if not _matches(name, self.exclude)))

    def _lacks(self, declared: "Declaration") -> list[str]:
        """Return what the host lacks for a Type."""
        needs, resources = dict(declared.needs), dict(declared.resources)
        if declared.executor:
            resources = {}  # the engine has them
        return lacking(needs, resources, self.labels, self.capacity)

    def left_out(self, registry: "Iterable[Declaration]") -> dict[str, list[str]]:
        """Return what the host lacks, by the Types that match and that are therefore not served."""
        own = [each for each in self.named(registry) if each.executor == self.executor]
        found = {each.identifier: self._lacks(each) for each in own}
        for each in own:
            if each.concurrency and self.loops == 0:
                found[each.identifier].append("loops (--loops 0)")
        return {
            type: lacks
            for type, lacks in found.items()
            if lacks and not _matches(type, self.exclude)
        }

    def costs(self, registry: "Iterable[Declaration]") -> Mapping[str, Amounts]:
        """Return the resources that an attempt of each Type takes, by the Type's names.

        Types that take none are left out.
        """
        return {
            name: dict(declared.resources)
            for declared in registry
            if declared.resources and declared.executor == self.executor
            for name in declared.names
        }

    def concurrency(self, registry: "Iterable[Declaration]") -> dict[str, int]:
        """Return how many attempts one loop runs at a time, by the served names of Types.

        Types without a concurrency are left out.
        """
        served = set(self.served(registry))
        return {
            name: declared.concurrency
            for declared in registry
            if declared.concurrency
            for name in declared.names
            if name in served
        }

    def descriptors(self, registry: "Iterable[Declaration]") -> int:
        """Return how many files a process of this daemon has open at most, beside the handlers'."""
        loops, places = self.loop_sizes(registry)
        return 6 * self.processes + 5 * loops * places + 64

    def loop_sizes(self, registry: "Iterable[Declaration]") -> tuple[int, int]:
        """Return the number of loops, and the number of places in each."""
        concurrency = self.concurrency(registry)
        if not concurrency:
            return 0, 0
        return 1 if self.loops is None else self.loops, max(concurrency.values())


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


@lru_cache
def hostname() -> str:
    """Return the name of this host.

    Followed by a colon and a pid, it is the ``who`` of a log record.
    """
    return socket.gethostname()[:190]


def named(types: Sequence[str]) -> str:
    """Return the names of the Types as text; only the first NAMED of them if there are more."""
    if len(types) > NAMED:
        return f"{', '.join(types[:NAMED])} and {len(types) - NAMED} more"
    return ", ".join(types) or "none"

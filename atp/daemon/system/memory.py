"""The memory that attempts take, compared with the limits of their Types.

Counted is what only goes away with its process: anonymous and shared memory,
resident or swapped out, of a worker and all its descendants, beyond what the
worker had before the attempt. Pages of files that are mapped are not, as the
kernel can drop them; and what they share, as after a fork, counts once.
"""

import time
from pathlib import Path

from ...words import attempt_messages
from . import descendants
from .processes import uptime

# While an attempt with a limit runs, it is looked at this often, in seconds: what
# it takes between two looks is taken beyond its limit.
LOOK_EVERY = 0.05
# To look for descendants reads the whole table of processes. It is done this often,
# in seconds, and never for more than a twentieth of the time.
DESCENDANTS_EVERY = 0.25
_SELDOM = 20

_OWN = (b"RssAnon:", b"RssShmem:", b"VmSwap:")
_SHARES = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")


def in_use(pid):
    """Return what a process has in memory by itself, in bytes; 0 if it is gone, or unknown."""
    try:
        return _sum(f"/proc/{pid}/status", _OWN)
    except OSError:
        return 0


def share(pid):
    """Return the same, but of what it shares with other processes only its share."""
    try:
        return _sum(f"/proc/{pid}/smaps_rollup", _SHARES) or in_use(pid)
    except OSError:  # not ours to read, or not told by this kernel
        return in_use(pid)


def _sum(path, names):
    """Add up the lines that begin with these names; they are in KiB."""
    lines = Path(path).read_bytes().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(names))


class MemoryWatch:
    """The supervisor's eye on workers whose attempts have a limit."""

    def __init__(self):
        self._descendants = {}
        self._next_look = 0.0

    def excesses(self, running):
        """Yield pid and reason of each worker whose attempt is over its limit.

        ``running`` is what has a limit, by the worker's pid.
        """
        if not running:
            return
        self._find_descendants(running)
        for pid, attempt in running.items():
            others = self._descendants.get(pid, ())
            family = [pid, *others]
            # An upper bound of what they have costs little to know.
            taken = sum(map(in_use, family)) - attempt.before
            if taken > attempt.memory and others:
                taken = sum(map(share, family)) - attempt.before
            if taken > attempt.memory:
                yield pid, attempt_messages.too_much_memory(taken, len(others), attempt.memory)

    def _find_descendants(self, pids):
        now = uptime()
        if now < self._next_look:
            return
        began = time.monotonic()
        below = descendants.descendants(pids)
        self._descendants = {pid: [each.pid for each in below[pid]] for pid in pids}
        self._next_look = now + max(DESCENDANTS_EVERY, _SELDOM * (time.monotonic() - began))

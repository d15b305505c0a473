"""The memory that attempts use, compared with the limits of their Types.

Anonymous and shared memory of a worker and all its descendants counts, resident or swapped out,
beyond what the worker had before the attempt. Mapped pages of files do not count, since the
kernel can drop them. Memory that processes share, for example after a fork, counts once.
"""

import time
from pathlib import Path

from ... import messages
from . import descendants
from .processes import uptime

# An attempt with a limit is looked at this often, in seconds. It may exceed its limit by the
# memory that it takes between two looks.
LOOK_EVERY = 0.05
# A search for descendants reads the whole table of processes. It is done this often, in
# seconds, and never takes more than a twentieth of the time.
DESCENDANTS_EVERY = 0.25
_SELDOM = 20

_OWN = (b"RssAnon:", b"RssShmem:", b"VmSwap:")
_SHARES = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")


def in_use(pid):
    """Return the memory of a process, in bytes, shared memory in full; 0 if unknown or gone."""
    try:
        return _sum(f"/proc/{pid}/status", _OWN)
    except OSError:
        return 0


def share(pid):
    """Return the memory of a process, in bytes, with only its share of shared memory."""
    try:
        return _sum(f"/proc/{pid}/smaps_rollup", _SHARES) or in_use(pid)
    except OSError:  # this process may not read it, or this kernel does not have it
        return in_use(pid)


def _sum(path, names):
    """Add up the lines that begin with these names; they are in KiB."""
    lines = Path(path).read_bytes().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(names))


class MemoryWatch:
    """The supervisor's watch on the workers whose attempts have a memory limit."""

    def __init__(self):
        self._descendants = {}
        self._next_look = 0.0

    def excesses(self, running):
        """Yield the pid of each worker whose attempt is over its limit, and the reason in words.

        ``running`` has the attempts with a limit, by the worker's pid.
        """
        if not running:
            return
        self._find_descendants(running)
        for pid, attempt in running.items():
            others = self._descendants.get(pid, ())
            family = [pid, *others]
            # in_use() is cheap and gives an upper bound.
            taken = sum(map(in_use, family)) - attempt.before
            if taken > attempt.memory and others:
                taken = sum(map(share, family)) - attempt.before
            if taken > attempt.memory:
                yield pid, messages.too_much_memory(taken, len(others), attempt.memory)

    def _find_descendants(self, pids):
        now = uptime()
        if now < self._next_look:
            return
        began = time.monotonic()
        below = descendants.descendants(pids)
        self._descendants = {pid: [each.pid for each in below[pid]] for pid in pids}
        self._next_look = now + max(DESCENDANTS_EVERY, _SELDOM * (time.monotonic() - began))

"""The processes of a daemon, as Linux shows them in /proc."""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """One process, by its pid."""

    pid: int

    @property
    def name(self):
        """What it calls itself, as in "atpd-worker-1"."""
        return self._read("comm").strip()

    @property
    def memory(self):
        """Its proportional share of memory in bytes (PSS): what it shares counts in parts."""
        [kilobytes] = re.findall(r"^Pss:\s+(\d+) kB", self._read("smaps_rollup"), re.MULTILINE)
        return 1024 * int(kilobytes)

    @property
    def processor_time(self):
        """The seconds that a processor has worked for it."""
        # Behind the name, which may have blanks and brackets in it, comes field 3.
        fields = self._read("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def files(self):
        """The paths of the files that it has open, one for each descriptor."""
        found = []
        for link in (_PROC / str(self.pid) / "fd").iterdir():
            with suppress(FileNotFoundError):
                found.append(os.readlink(link))
        return found

    def family(self):
        """Return it and all its descendants, without those that have just ended."""
        try:
            children = self._read(f"task/{self.pid}/children").split()
        except (FileNotFoundError, ProcessLookupError):
            return []
        return [self, *(found for pid in children for found in Process(int(pid)).family())]

    def _read(self, name):
        return (_PROC / str(self.pid) / name).read_text()

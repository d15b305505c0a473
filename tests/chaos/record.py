"""The handlers' own record, the executions in the record, and their clock."""

import json
import time
from dataclasses import dataclass, field


def uptime():
    """Return seconds on a clock that never steps and that all processes of the host share."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of the record: ``place`` is its number, ``time`` is on the uptime clock."""

    place: int
    event: str
    time: float
    instance: str
    attempt: int
    pid: int
    outcome: str = ""
    nonce: str = ""

    def __str__(self):
        told = f"{self.event} {self.outcome} {self.nonce}".rstrip()
        return f"{self.time:.3f} line {self.place} pid {self.pid} attempt {self.attempt} {told}"


@dataclass
class Execution:
    """The lines of the record for one attempt, in the order they were written.

    An attempt whose process was killed has no end. It was at work at least until its last line.
    """

    attempt: int
    lines: list = field(default_factory=list)

    @property
    def first(self):
        return self.lines[0]

    @property
    def last(self):
        return self.lines[-1]

    def of(self, event):
        """Return the lines of an event."""
        return [line for line in self.lines if line.event == event]

    @property
    def pids(self):
        """The pids of the processes that have entered the handler."""
        return {line.pid for line in self.of("start")}

    @property
    def end(self):
        """The last line with an end, or None if the handler has not ended."""
        ends = self.of("end")
        return ends[-1] if ends else None

    @property
    def begun_by_time(self):
        return min(line.time for line in self.lines)

    @property
    def ended_by_time(self):
        return max(line.time for line in self.lines)


def executions(lines):
    """Return the Executions by Instance and attempt: ``{uuid: {attempt: Execution}}``."""
    found = {}
    for line in lines:
        attempts = found.setdefault(line.instance, {})
        attempts.setdefault(line.attempt, Execution(line.attempt)).lines.append(line)
    return found


def read(path):
    """Return the Executions in a record file; a missing file has none."""
    lines = path.read_text().splitlines() if path.exists() else []
    return executions(Line(place=at, **json.loads(line)) for at, line in enumerate(lines, 1))

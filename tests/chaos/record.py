"""The handlers' own record, and the executions that it tells of."""

import json
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line; ``place`` is its number in the file, ``time`` is on the uptime clock."""

    place: int
    event: str
    time: float
    instance: str
    attempt: int
    pid: int
    outcome: str = ""
    nonce: str = ""

    def __str__(self):
        told = f" {self.outcome} {self.nonce}".rstrip()
        return f"{self.time:.3f} line {self.place} pid {self.pid} attempt {self.attempt} " + (
            f"{self.event}{told}"
        )


@dataclass
class Execution:
    """What the record tells of one attempt: its lines, in the order they were written.

    An attempt whose process was killed has no end; it has been at work at least until
    its last line.
    """

    instance: str
    attempt: int
    lines: list = field(default_factory=list)

    @property
    def first(self):
        return self.lines[0]

    @property
    def last(self):
        return self.lines[-1]

    @property
    def pids(self):
        """Processes that have entered the handler."""
        return {line.pid for line in self.lines if line.event == "start"}

    def of(self, event):
        """Return the lines of an event."""
        return [line for line in self.lines if line.event == event]

    @property
    def end(self):
        """The line of its end; None if it did not get there."""
        ends = self.of("end")
        return ends[-1] if ends else None

    @property
    def begun_by_time(self):
        return min(line.time for line in self.lines)

    @property
    def ended_by_time(self):
        return max(line.time for line in self.lines)


def read(path):
    """Return every Line of a record; a file that is not there has none."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    return [
        Line(place=place, **json.loads(line)) for place, line in enumerate(text.splitlines(), 1)
    ]


def executions(lines):
    """Return the Executions by Instance and attempt: ``{uuid: {attempt: Execution}}``."""
    found = {}
    for line in lines:
        attempts = found.setdefault(line.instance, {})
        execution = attempts.get(line.attempt)
        if execution is None:
            execution = attempts[line.attempt] = Execution(line.instance, line.attempt)
        execution.lines.append(line)
    return found

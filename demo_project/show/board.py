"""Shows progress on a board that is redrawn in the terminal, or as lines without a terminal."""

import os
import shutil
import sys
import time

from atp.states import State

BAR = 20
# Without a terminal a line is written at each of this many steps of progress.
STEPS = 4
_COLOURS = {State.FINISHED: "32", State.FAILED: "31", State.RUNNING: "36"}


def label(instance):
    """Return an Instance's Type and inputs on one line, or its Type and node name in a graph."""
    node = getattr(instance, "node", None)
    if node is not None:
        return f"{instance.type.identifier} {node.name}"
    inputs = instance.inputs.value
    given = [str(value) for value in inputs.pop("*", [])]
    given += [f"{name}={value}" for name, value in inputs.items()]
    return " ".join([instance.type.identifier, *given])


def board(stream=sys.stdout):
    """Return a LiveBoard if the stream is a terminal, otherwise a LineBoard."""
    live = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return LiveBoard(stream) if live else LineBoard(stream)


class LineBoard:
    """Writes a line whenever the state or progress of an Instance has changed."""

    def __init__(self, stream=sys.stdout):
        self._stream = stream
        self._began = time.monotonic()
        self._seen = {}

    def show(self, instances):
        """Write a line for each Instance that has changed since the last call."""
        for instance in instances:
            running = instance.state == State.RUNNING
            step = int((instance.progress or 0) * STEPS) if running else 0
            facts = (instance.state, instance.attempt, step)
            if self._seen.get(instance.pk) == facts:
                continue
            self._seen[instance.pk] = facts
            elapsed = time.monotonic() - self._began
            line = f"{elapsed:6.1f} s  {label(instance):<48} {status(instance)}"
            print(line.rstrip(), file=self._stream, flush=True)


class LiveBoard:
    """Redraws one line for each Instance in place."""

    def __init__(self, stream):
        self._stream = stream
        self._drawn = 0
        self._full, self._empty = "█░" if _can_write(stream, "█░") else "#."
        self._coloured = "NO_COLOR" not in os.environ

    def show(self, instances):
        """Draw the board over the previous one."""
        size = shutil.get_terminal_size()
        # Lines that have scrolled out of the window cannot be redrawn.
        shown = instances[-(size.lines - 2) :]
        up = f"\x1b[{self._drawn}F" if self._drawn else ""
        lines = [f"{self._line(instance, size.columns)}\x1b[K\n" for instance in shown]
        self._stream.write(up + "".join(lines))
        self._stream.flush()
        self._drawn = len(shown)

    def _line(self, instance, width):
        part = 1.0 if instance.state == State.FINISHED else instance.progress or 0.0
        filled = round(part * BAR)
        bar = self._full * filled + self._empty * (BAR - filled)
        line = f"{label(instance):<42.42} {bar} {status(instance)}"[: width - 1]
        colour = _COLOURS.get(instance.state)
        return f"\x1b[{colour}m{line}\x1b[0m" if colour and self._coloured else line


def _can_write(stream, text):
    try:
        text.encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def status(instance):
    """Return an Instance's state, with its reason, attempt and progress where they matter."""
    words = [instance.state]
    if instance.reason:
        words.append(f"({instance.reason})")
    if instance.attempt > 1:
        words.append(f"attempt {instance.attempt}")
    if instance.state == State.RUNNING and instance.progress is not None:
        words.append(f"{instance.progress:.0%} {instance.progress_message}")
    return " ".join(words).strip()

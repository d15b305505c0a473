"""What an engine runs: it hands a ticket to the keeper beside the engine's worker, and waits.

Nothing of Django is imported here: the worker of an engine may have threads, and other work.
"""

import itertools
import json
import os
import subprocess
import sys
import threading

_MAIN = "import django; django.setup(); from atp.daemon import keeper; keeper.main()"
# The variable by which programs find the GPUs that they may use.
VISIBLE = "CUDA_VISIBLE_DEVICES"
_lock = threading.Lock()
_keepers: "dict[int, _Keeper]" = {}


class TicketRefused(Exception):
    """The attempt of a ticket was not run, or not to its end; the message says why."""


class _Keeper:
    """The keeper of this process, and the threads that wait for it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _MAIN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[threading.Event, list[str]]] = {}
        self.is_dead = False
        threading.Thread(target=self._read, name="atp-keeper", daemon=True).start()

    def run(self, ticket: str) -> str:
        """Run the attempt of a ticket; return what went wrong, or ""."""
        event = threading.Event()
        errors: list[str] = []
        with _lock:
            number = next(self._numbers)
            self._waiting[number] = event, errors
            # An engine may give its worker other GPUs with each ticket.
            facts = {"number": number, "text": ticket, "visible": os.environ.get(VISIBLE)}
            line = json.dumps(facts) + "\n"
            try:
                self._process.stdin.write(line.encode())  # type: ignore[union-attr]
                self._process.stdin.flush()  # type: ignore[union-attr]
            except OSError:
                self._end()
        event.wait()
        return "".join(errors)

    def _read(self) -> None:
        for line in self._process.stdout:  # type: ignore[union-attr]
            found = json.loads(line)
            with _lock:
                event, errors = self._waiting.pop(found["number"])
            errors.append(found["error"])
            event.set()
        with _lock:
            self._end()

    def _end(self) -> None:
        self.is_dead = True
        for event, errors in self._waiting.values():
            errors.append("the keeper has died")
            event.set()
        self._waiting.clear()


def run(ticket: str) -> None:
    """Run the attempt of a ticket, and return when it has ended.

    The daemon that has made the ticket hears of the result from the keeper. Raises TicketRefused.
    """
    with _lock:
        # A fork of this process has threads of its own, but none of its parent's.
        keeper = _keepers.get(os.getpid())
        if keeper is None or keeper.is_dead:
            keeper = _keepers[os.getpid()] = _Keeper()
    error = keeper.run(ticket)
    if error:
        raise TicketRefused(error)

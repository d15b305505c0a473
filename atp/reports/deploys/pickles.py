"""Open pickled inputs in a child process: a pickle may run code of anyone who can sign one.

The child has no database connection. If it dies, that counts as the answer for the row.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence

from django.db import connections

# The longest time that one may take to open, in seconds.
PATIENCE = 10

Row = tuple[int, str]
# The key of an Instance, the reason why its inputs do not fit, and whether they were adapted.
Verdict = tuple[int, str, bool]


def opened(rows: Sequence[Row], judge: Callable[[str], tuple[str, bool]]) -> Iterator[Verdict]:
    """Yield ``judge(text)`` for each row, a pair of key and text, in order."""
    left = list(rows)
    while left:
        answered = 0
        for verdict in _ask(left, judge):
            answered += 1
            yield verdict
        left = left[answered:]
        if left:
            key, _ = left.pop(0)
            yield key, f"the process that opened them ended, or took over {PATIENCE} s", False


def _ask(rows: Sequence[Row], judge: Callable[[str], tuple[str, bool]]) -> Iterator[Verdict]:
    """Yield the answers of one child, which may die before it has answered all."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        _answer(rows, judge, writing)
    os.close(writing)
    with os.fdopen(reading) as answers:
        for line in answers:
            if not line.endswith("\n"):
                break
            key, why, is_adapted = json.loads(line)
            yield key, why, is_adapted
    os.waitpid(pid, 0)


def _answer(rows: Sequence[Row], judge: Callable[[str], tuple[str, bool]], writing: int) -> None:
    """Run as the child: answer all rows and exit. Never returns."""
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        # The connections are the parent's: none is used here, and none is closed.
        kept = [each.connection for each in connections.all(initialized_only=True)]
        for each in connections.all(initialized_only=True):
            each.connection = None
        for key, text in rows:
            signal.alarm(PATIENCE)
            line = json.dumps([key, *judge(text)])
            os.write(writing, f"{line}\n".encode())
        status = 0 if kept is not None else 1
    finally:
        os._exit(status)

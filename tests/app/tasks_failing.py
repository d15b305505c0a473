"""Handlers that fail for one of seven causes until the cause is fixed."""

from pathlib import Path

from atp import Fatal, task_type

from .tasks_daemon import record

CAUSES = 7


class NoElevation(Exception):
    """A tile has no elevation."""


def _look_up(number):
    return {}[f"tile {number}"]


def _read(number):
    try:
        _look_up(number)
    except KeyError as error:
        raise OSError(f"tile {number} of /data/{number:08x} cannot be read") from error


def fail(cause, number):
    if cause == 0:
        raise NoElevation(f"tile {number} has no elevation")
    if cause == 1:
        raise ValueError(f"{number} is not a zoom of 'user {number}'")
    if cause == 2:
        _look_up(number)
    if cause == 3:
        _read(number)
    if cause == 4:
        raise Fatal(f"no model of {number}", fingerprint="no-dem")
    if cause == 5:
        raise Fatal(f"the order {number} is withdrawn")
    return [1][number + 1]


@task_type("failing.cause")
def cause(context, *, number, mended="", path=""):
    """Fail, unless the file ``mended`` exists and names this cause as fixed."""
    if path:
        record(path, event="ran", number=number, attempt=context.attempt)
    if number % CAUSES not in _mended(mended):
        fail(number % CAUSES, number)
    return number


def _mended(path):
    there = bool(path) and Path(path).exists()
    return [int(word) for word in Path(path).read_text().split()] if there else []

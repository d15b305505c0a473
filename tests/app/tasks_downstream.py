"""Handlers that call a downstream: a file says what it answers; each leaves a line in a record."""

import time
from pathlib import Path

from atp import Throttled, Unavailable, task_type

from .tasks_daemon import record


class RelayError(Exception):
    """Raised by a client's library."""


@task_type("downstream.call", downstream="relay", downstream_errors=RelayError, max_retries=0)
def call(context, *, path, answers):
    """Do as the file says: "ok", "refuse", "refuse 30", "fail", "error" or "hang"."""
    said, _, after = Path(answers).read_text().partition(" ")
    record(path, event=said, attempt=context.attempt, time=time.time())
    if said == "refuse":
        raise Throttled("429", after=after or None)
    if said == "fail":
        raise Unavailable("503")
    if said == "error":
        raise RelayError("no route")
    while Path(answers).read_text() == "hang":
        time.sleep(0.02)


@task_type("downstream.other", downstream="relay")
def other(context):
    """Another Type that calls the same."""


@task_type("downstream.none", max_retries=1, backoff=0)
def none(context, *, fails=False):
    raise Unavailable("503") if fails else Throttled("429")

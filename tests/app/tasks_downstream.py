"""Handlers that call a downstream, which answers as a file says; each writes a line to a record."""

import time
from pathlib import Path

from atp import Throttled, Unavailable, task_type

from .tasks_daemon import record


class RelayError(Exception):
    """An error that a client library raises."""


@task_type("downstream.call", downstream="relay", downstream_errors=RelayError, max_retries=0)
def call(context, *, path, answers):
    """Do what the file says: "ok", "refuse", "refuse 30", "fail", "error" or "hang"."""
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
    """Call the same downstream from another Type."""


@task_type("downstream.none", max_retries=1, backoff=0)
def none(context, *, fails=False):
    raise Unavailable("503") if fails else Throttled("429")

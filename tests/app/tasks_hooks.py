"""A Type with hooks, and its hook, for the chaos suite and for tests with daemons."""

import os
import time

from atp import Fatal, Retry, task_type


@task_type("chaos.hook", max_retries=5, backoff=0.1, backoff_max=1)
def hook(context, *, uuid, type, state, reason):
    """Return the inputs, as any other task can do."""
    return {"uuid": uuid, "type": type, "state": state, "reason": reason}


@task_type(
    "chaos.hooked",
    max_retries=1,
    max_restarts=1,
    backoff=0.1,
    on_finished=hook,
    on_failed=hook,
)
def hooked(context, *, how="finish", seconds=0):
    time.sleep(seconds)
    if how == "retry":
        raise Retry("once more")
    if how == "fail":
        raise ZeroDivisionError(how)
    if how == "fatal":
        raise Fatal(how)
    if how == "exit":
        os._exit(3)
    return how

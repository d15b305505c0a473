"""Handlers that are paused or pause themselves; each writes lines to a record."""

import os
import subprocess
import sys
import time

from django.db import transaction

from atp import task_type

from .tasks_daemon import record, wait_for_file


def tick(path, context, number, event="tick"):
    record(path, event=event, number=number, attempt=context.attempt)


def steps_of(count, until):
    """Yield 0 until the file ``until`` exists, then count."""
    while until and not os.path.exists(until):
        yield 0
    yield from range(count)


@task_type("pause.steps", timeout=6)
def steps(context, *, path, count=100, until=None, number=0):
    tick(path, context, number, "start")
    total = 0
    for step in steps_of(count, until):
        time.sleep(0.01)
        total += step
        tick(path, context, number)
        context.progress(step + 1, count)
        context.check()
    tick(path, context, number, "end")
    return total


@task_type("pause.endless", timeout=1.5, max_restarts=0)
def endless(context, *, path, number=0):
    while True:
        tick(path, context, number)
        time.sleep(0.01)
        context.check()


@task_type("pause.deaf", timeout=6, stoppable=True)
def deaf(context, *, path, count=100, until=None, number=0):
    """Do a number of steps without checking for requests, next to a child that works too."""
    loop = f"open({path!r} + '.child', 'a').write('x')"
    child = subprocess.Popen(
        [sys.executable, "-c", f"import time\nwhile True: {loop}; time.sleep(0.01)"]
    )
    tick(path, context, number, "start")
    total = 0
    for step in steps_of(count, until):
        time.sleep(0.01)
        total += step
        tick(path, context, number)
    child.kill()
    child.wait()
    return total


@task_type("pause.by_itself", timeout=3)
def by_itself(context, *, path, until, number=0):
    """Pause while waiting for a file, as a handler would wait for a licence."""
    tick(path, context, number, "start")
    with context.paused("waiting for the licence"):
        wait_for_file(context, until)
        tick(path, context, number, "there")
    tick(path, context, number, "end")
    return "done"


@task_type("pause.in_transaction")
def in_transaction(context):
    """Pause inside an open transaction."""
    with transaction.atomic(), context.paused("it would wait here"):
        pass

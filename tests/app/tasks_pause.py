"""Handlers that are paused, or pause themselves. Each leaves lines in a record."""

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
    """Count, but stay at the first, which is 0, while there is no file where ``until`` says."""
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
    """Go a number of steps and never look, beside a program that does something too."""
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
    """Wait for a file as for a licence: that is not its own work."""
    tick(path, context, number, "start")
    with context.paused("waiting for the licence"):
        wait_for_file(context, until)
        tick(path, context, number, "there")
    tick(path, context, number, "end")
    return "done"


@task_type("pause.in_transaction")
def in_transaction(context):
    """Keep a transaction open for who knows how long."""
    with transaction.atomic(), context.paused("it would wait here"):
        pass

"""A tailer that the daemon's tests run: its records are groups, whose names say what to do."""

import os
import signal

from django.contrib.auth.models import Group

from atp import tailer, task_type
from atp.sources import Table

from .tasks_daemon import record as note
from .tasks_daemon import wait_for_file


@task_type("tailers.work")
def work(context, *, name):
    return name


@tailer("tailers.groups", Table(Group), every=None, timeout=120)
def groups(record):
    """Make a call of a group; "kill …" ends the worker, "raise …" raises."""
    name = record.row.name
    if name.startswith("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if name.startswith("raise"):
        raise KeyError(name)
    return work.call(name=name)


@task_type("tailers.committing", max_restarts=5, timeout=120)
def committing(context, *, path, until):
    """Leave a row in a transaction that waits for a file."""
    with context.transaction():
        Group.objects.create(name=f"attempt {context.attempt}")
        note(path, event="written", attempt=context.attempt)
        wait_for_file(context, until)
    note(path, event="committed", attempt=context.attempt)


@task_type("tailers.nested")
def nested(context):
    """Begin a transaction in another."""
    with context.transaction(), context.transaction():
        pass

"""Tailers of the daemon's tests, whose records are Groups, and those of the chaos suite."""

import json
import os
import signal

from django.contrib.auth.models import Group

from atp import tailer, task_type
from atp.sources import Directory, FileRecord, Kafka, RedisStream, RowRecord, Table

from .tasks_daemon import record as note
from .tasks_daemon import wait_for_file


@task_type("tailers.work")
def work(context, *, name):
    return name


@tailer("tailers.groups", Table(Group), every=None, timeout=120)
def groups(record):
    """Return a call for a Group; the name "kill …" ends the worker, "raise …" raises."""
    name = record.row.name
    if name.startswith("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if name.startswith("raise"):
        raise KeyError(name)
    return work.call(name=name)


@task_type("tailers.committing", max_restarts=5, timeout=120)
def committing(context, *, path, until):
    """Write a row in a transaction that waits for a file."""
    with context.transaction():
        Group.objects.create(name=f"attempt {context.attempt}")
        note(path, event="written", attempt=context.attempt)
        wait_for_file(context, until)
    note(path, event="committed", attempt=context.attempt)


# The sources of a run of the chaos suite, by its environment: a folder, and addresses.
CHAOS = json.loads(os.environ.get("ATP_CHAOS_SOURCES", "{}"))
# A record with such a number raises, or kills the worker.
RAISES, KILLS = 97, 211


@task_type("chaos.tailed")
def tailed(context, *, source, number):
    return number


def number_of(record):
    if isinstance(record, FileRecord):
        return int(record.path.name)
    return int(record.row.name if isinstance(record, RowRecord) else record.text())


def _declare(name, source):
    def chaos(record):
        number = number_of(record)
        if number % KILLS == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if number % RAISES == 0:
            raise KeyError(number)
        return tailed.call(source=name, number=number)

    tailer(f"chaos.{name}", source, every=1, batch=20, timeout=30)(chaos)


if CHAOS:
    _declare("table", Table(Group))
    _declare("directory", Directory(CHAOS["folder"], quiet=0))
    _declare("redis", RedisStream("chaos", url=CHAOS["redis"], trim=True))
    _declare("trimmed", RedisStream("chaos-trimmed", url=CHAOS["redis"], on_gap="skip"))
    _declare("kafka", Kafka("chaos", servers=CHAOS["kafka"]))

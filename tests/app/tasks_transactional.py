"""Handlers of transactional Types that the daemon's tests run."""

import os
import random
import sys
import time

from django.contrib.auth.models import Group
from django.db import connection, transaction

from atp import Fatal, Output, task_type

from .tasks_daemon import record, wait_for_file


def write(context, number):
    Group.objects.create(name=f"{number}/{context.attempt}")


def written():
    """Return the numbers of all rows, with duplicates."""
    return sorted(
        int(name.partition("/")[0]) for name in Group.objects.values_list("name", flat=True)
    )


@task_type("transactional.row", transactional=True, max_restarts=1000)
def row(context, *, number, pause=0.0, seconds=0.0):
    time.sleep(random.random() * pause + seconds)
    write(context, number)
    context.log("written")
    time.sleep(random.random() * pause)
    return number


@task_type("transactional.waiting", transactional=True, timeout=120)
def waiting(context, *, path, until, number=0):
    write(context, number)
    record(path, event="start", number=number, attempt=context.attempt, backend=backend())
    context.log("waiting")
    context.progress(0.5)
    wait_for_file(context, until)
    record(path, event="end", number=number, attempt=context.attempt)
    return Output(b"x" * 100_000)


@task_type("transactional.raising", transactional=True)
def raising(context, *, number=0):
    write(context, number)
    context.log("about to refuse")
    context.publish(b"of no use", "refused.txt")
    raise Fatal("refused")


@task_type("transactional.raising_late", transactional=True, timeout=120)
def raising_late(context, *, path, until):
    write(context, 0)
    record(path, event="start", attempt=context.attempt)
    wait_for_file(context, until)
    if context.attempt == 1:
        raise Fatal("refused")


@task_type("transactional.dying", transactional=True, max_restarts=1)
def dying(context, *, number=0):
    write(context, number)
    os._exit(7)


@task_type("transactional.hooks", transactional=True)
def hooks(context, *, path, number=0):
    """Write a row; a callback after the commit fails."""
    write(context, number)

    def after():
        record(path, event="committed", attempt=context.attempt)
        raise RuntimeError("after the commit")

    transaction.on_commit(after)


@task_type("transactional.slow_hooks", transactional=True)
def slow_hooks(context, *, path, number=0):
    """Write a row and report progress last; a callback after the commit is slow."""

    def after():
        context.log("too late to be kept")
        time.sleep(0.5)
        record(path, event="after", number=number, attempt=context.attempt)

    write(context, number)
    transaction.on_commit(after)
    context.progress(1, 1)


@task_type("transactional.leaving_open", transactional=True)
def leaving_open(context, *, number=0):
    """Write a row in an atomic block that is never left."""
    transaction.atomic().__enter__()
    write(context, number)


@task_type("transactional.swallowing", transactional=True)
def swallowing(context, *, number=0):
    """Break the transaction, and continue as if nothing had happened."""
    write(context, number)
    try:
        Group.objects.create(name=f"{number}/{context.attempt}")
    except Exception:
        context.log("never mind")


def backend():
    """Return the pid of the server process for this connection, or None on SQLite."""
    if connection.vendor != "postgresql":
        return None
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


@task_type("transactional.dying_late", transactional=True, max_restarts=0)
def dying_late(context, *, number=0):
    """Write a row, and exit the worker right after the commit."""
    write(context, number)
    transaction.on_commit(lambda: os._exit(7))


@task_type("transactional.forking", transactional=True)
def forking(context, *, number, how):
    write(context, number)
    child = os.fork()
    if child == 0:
        if how == "exit":
            sys.exit(0)
        if how == "raise":
            raise RuntimeError("in the fork")
        return "copy"
    os.waitpid(child, 0)
    write(context, number + 1)
    return "original"


@task_type("transactional.talking", transactional=True)
def talking(context, *, lines, fails=False):
    for number in range(lines):
        context.log(f"line {number}")
    if fails:
        raise Fatal("that was all")

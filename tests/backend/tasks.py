"""Tasks that tests enqueue; on Django 5.2 they are declared with the backport."""

import asyncio
import os
from pathlib import Path

from django.contrib.auth.models import Group
from django.db import connection

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

import atp


@task
def add(first, second=0, *more):
    return first + second + sum(more)


@task(queue_name="letters", priority=7)
def send(user, *, subject="", **more):
    return {"user": user, "subject": subject, **more}


@task
def parent(number):
    add.enqueue(number)


@task
def unkept():
    """A task with a retention of 0, which the test settings set."""


@task
async def later(number):
    await asyncio.sleep(0)
    return number + 1


@task
async def forever(path):
    Path(path).touch()
    await asyncio.Event().wait()


@task
def fails(words="went wrong"):
    raise ValueError(words)


@task
def stubborn():
    """A task with two retries, which the test settings set."""
    raise KeyError("again")


@task
def fatal():
    raise atp.Fatal("no use")


class AnExceptionWithALongNameThatIsLongerThanItsColumnInTheLogOfATP(Exception):
    pass


@task
def fails_at_length():
    raise AnExceptionWithALongNameThatIsLongerThanItsColumnInTheLogOfATP("too long")


@task
def exits():
    os._exit(3)


@task
def leaves():
    raise SystemExit("leaving")


@task
def strange():
    return lambda: None


@task
def nothing(*args, **kwargs):
    return None


@task
def pair():
    return (1, b"two")


@task
def by_number():
    return {1: "a", None: {True: 2.5}, "text": [{7: 8}]}


@task
def nightly(region, slot=None):
    return f"{region} {slot:%Y}"


@task(takes_context=True)
def shows(context, first, other=None):
    return [first, context.task_result.args, context.task_result.kwargs]


@task(takes_context=True)
def looks_again(context):
    result = context.task_result
    result.refresh()
    return [context.attempt, str(result.status), result.worker_ids]


@task(takes_context=True)
async def which(context):
    return [context.attempt, context.task_result.enqueued_at is not None]


@task(takes_context=True)
async def async_with_context(context):
    return context.attempt


@task(takes_context=True)
def who(context, number=0):
    result = context.task_result
    context.atp.progress(1, 2)
    return {
        "id": result.id,
        "attempt": context.attempt,
        "args": result.args,
        "workers": result.worker_ids,
        "status": result.status,
        "enqueued": result.enqueued_at is not None,
        "type": context.atp.type,
    }


@task
def make_group(name):
    Group.objects.create(name=name)
    return connection.in_atomic_block

"""Handlers with a concurrency. Only daemons with the label ``tests=loops`` serve them."""

import asyncio
import gc
import logging
import os
import signal
import time

from asgiref.sync import SyncToAsync, sync_to_async
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.utils import translation

from atp import Fatal, task_type

from .tasks_daemon import record

HERE = {"tests": "loops"}
logger = logging.getLogger("shop")


@task_type("loops.wait", concurrency=100, needs=HERE, timeout=120)
async def wait(context, *, path, seconds=0.0):
    record(path, event="start", instance=str(context.uuid), attempt=context.attempt)
    await asyncio.sleep(seconds)
    record(path, event="end", instance=str(context.uuid), attempt=context.attempt)


three = task_type("loops.three", concurrency=3, needs=HERE, timeout=120)(wait.handler)


@task_type("loops.talk", concurrency=100, needs=HERE, timeout=120)
async def talk(context, *, name, language):
    """Use all that a context has, beside others who do the same."""
    with translation.override(language):
        context.progress(0.5, message=name)
        logger.warning("%s speaks %s", name, translation.get_language())
        await asyncio.gather(
            _speak(name), asyncio.to_thread(logger.warning, "%s in a thread", name)
        )
        context.log(f"{name} ends in {translation.get_language()}")
    await context.publish(name.encode(), name=f"{name}.txt")
    return {"name": name}


async def _speak(name):
    await asyncio.sleep(0.01)
    logger.warning("%s in a child", name)


@task_type("loops.orm", concurrency=100, needs=HERE, timeout=120)
async def orm(context, *, name, fails=False):
    await Group.objects.aget_or_create(name=name)
    threads = await sync_to_async(_connections)()
    if fails:
        raise Fatal("as asked")
    return threads


def _connections():
    connection.ensure_connection()
    return {"vendor": connection.vendor}


@task_type("loops.open", concurrency=100, needs=HERE, timeout=120)
async def leave_open(context):
    await sync_to_async(transaction.atomic().__enter__)()
    await Group.objects.acreate(name="lost")


@task_type("loops.steps", concurrency=100, needs=HERE, timeout=120, max_retries=2, backoff=0.01)
async def steps(context, *, path):
    first = await context.step("first", _first, path)
    second = await context.step("second", time.sleep, 0)
    await context.sleep(0.1)
    if context.retries == 0:
        raise ValueError("once more")
    return {"first": first, "second": second}


async def _first(path):
    record(path, event="first")
    await asyncio.sleep(0)
    return 1


@task_type("loops.long", concurrency=100, needs=HERE, timeout=0.5, max_restarts=0)
async def too_long(context, *, path, how):
    """Outlast the time-out."""
    try:
        if how == "thread":
            await sync_to_async(time.sleep)(1)
        if how == "other thread":
            await asyncio.to_thread(_sleep_and_tell, path)
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        record(path, event="cancelled", how=how)
        if how == "returns":
            return {"saved": True}
        if how == "raises":
            raise ValueError("not in time") from None
        raise


def _sleep_and_tell(path):
    time.sleep(1)
    record(path, event="thread ended")


@task_type("loops.in_thread", concurrency=100, needs=HERE, timeout=120)
async def in_thread(context, *, path, seconds):
    await sync_to_async(time.sleep)(seconds)
    record(path, event="ran")


@task_type("loops.count", concurrency=100, needs=HERE, timeout=120)
async def count(context):
    """Return how much of earlier attempts this process still holds."""
    gc.collect()
    return {"lanes": len(SyncToAsync.context_to_thread_executor)}


@task_type("loops.child", concurrency=100, needs=HERE, timeout=120)
async def child_fails(context):
    context.child = asyncio.ensure_future(_fail())
    await asyncio.sleep(0.05)


async def _fail():
    raise ValueError("of a child")


@task_type("loops.leftovers", concurrency=100, needs=HERE, timeout=120)
async def leave_tasks(context, *, path):
    context.left = asyncio.ensure_future(_left(path))
    await asyncio.sleep(0)


async def _left(path):
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        record(path, event="cancelled")
        raise


@task_type("loops.odd", concurrency=100, needs=HERE, timeout=120)
async def odd(context, *, how):
    """End in an odd way that concerns nobody else."""
    if how == "exit":
        raise SystemExit(3)
    if how == "child exits":
        child = asyncio.ensure_future(_exit())
        await asyncio.wait([child])
    if how == "cancels itself":
        asyncio.current_task().cancel()
        await asyncio.sleep(1)
    if how == "pauses":
        context.paused("for long")


async def _exit():
    raise SystemExit(4)


@task_type("loops.bad", concurrency=100, needs=HERE, timeout=1, cancel_grace=0.5, max_restarts=0)
async def bad(context, *, how):
    """Be bad to those beside it."""
    await asyncio.sleep(0.3)
    if how == "exit":
        os._exit(3)
    if how == "thread":
        await sync_to_async(os._exit)(4)
    if how == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "spin":
        while True:
            pass
    if how == "block":
        time.sleep(600)
    if how == "memory":
        # The kernel ends a process that takes too much.
        os.kill(os.getpid(), signal.SIGKILL)
    while True:  # "stubborn"
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass


@task_type("loops.tick", concurrency=50, needs=HERE, timeout=120, max_restarts=1000)
async def tick(context, *, path):
    """Tell every 10 ms that this attempt is at work, for half a second."""
    for _ in range(50):
        record(path, event="tick", instance=str(context.uuid), attempt=context.attempt)
        await asyncio.sleep(0.01)
    record(path, event="done", instance=str(context.uuid), attempt=context.attempt)

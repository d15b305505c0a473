"""Handlers that are coroutine functions; each writes a line to a record."""

import asyncio
import threading

from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import connection

from atp import Fatal, Retry, task_type

from .tasks_daemon import record


@task_type("async.gather", timeout=120)
async def gather(context, *, count):
    waits = [asyncio.sleep(0.01 * number, number) for number in range(count)]
    numbers = await asyncio.gather(*waits)
    context.progress(1.0)
    context.log("gathered")
    return {"sum": sum(numbers)}


@task_type("async.orm", timeout=120)
async def orm(context, *, name):
    """Use the asynchronous ORM and return the threads in which code runs."""
    made, _ = await Group.objects.aget_or_create(name=name)
    found = await Group.objects.acount()
    in_main = await sync_to_async(_is_main)()
    return {"made": made.name, "found": found, "orm in main": in_main, "own": _is_main()}


@task_type("async.together", transactional=True)
async def together(context, *, name, fails=False):
    """Write a row that is committed together with the end, or not at all."""
    await Group.objects.acreate(name=name)
    in_transaction = await sync_to_async(lambda: connection.in_atomic_block)()
    if fails:
        raise Fatal("no use")
    return {"in transaction": in_transaction}


@task_type("async.raises", max_retries=1, backoff=0.01)
async def raises(context, *, how):
    await asyncio.sleep(0)
    if how == "retry":
        raise Retry("turned away", after=0.01)
    if how == "exit":
        raise SystemExit(3)
    if how == "cancels itself":
        asyncio.current_task().cancel()
        await asyncio.sleep(60)
    raise LookupError("went wrong")


@task_type("async.sleep", timeout=120)
async def sleep(context, *, path):
    try:
        record(path, event="start", attempt=context.attempt)
        await asyncio.sleep(100)
    finally:
        record(path, event="cleaned up", attempt=context.attempt)


@task_type("async.stubborn", timeout=120, cancel_grace=0.5)
async def stubborn(context, *, path):
    record(path, event="start", attempt=context.attempt)
    while True:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            record(path, event="cancelled", attempt=context.attempt)


@task_type("async.looks", timeout=120)
async def looks(context, *, path):
    record(path, event="start", attempt=context.attempt)
    with_nothing_to_await = threading.Event()
    while True:
        context.check()
        with_nothing_to_await.wait(0.01)


@task_type("async.steps", max_retries=1, backoff=0.01)
async def steps(context, *, path):
    result = await sync_to_async(context.step)("charge", _charge, path)
    if context.attempt == 1:
        raise LookupError("after the step")
    return result


def _charge(path):
    record(path, event="charged")
    return {"charged": 1}


def _is_main():
    return threading.current_thread() is threading.main_thread()

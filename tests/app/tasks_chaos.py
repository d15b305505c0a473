"""Handlers that the chaos suite runs; each attempt appends lines to a shared record file.

A line says that an attempt has begun, that it is still at work (every 20 ms), or that it has
ended. Each line is a single write in append mode, so the order of the lines is the order of the
events, whichever process wrote them. No attempt was at work before its first line. After its last
line it cannot have worked for long without another line.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from functools import WRAPPER_ASSIGNMENTS, update_wrapper
from inspect import iscoroutinefunction

from django.contrib.auth.models import Group

from atp import Fatal, Interrupted, Retry, task_type

from ..chaos.record import uptime

TICK = 0.02
# What is longer than MAX_RESPONSE_INLINE is stored as a file.
LARGE = "x" * 100_000
BESIDE = {"concurrency": 20, "needs": {"tests": "loops"}}

# A child says that it is at work for as long as it lives, which is longer than any handler.
CHILD = """
import json, os, sys, time
path, line = sys.argv[1], json.loads(sys.argv[2])
file = os.open(path, os.O_WRONLY | os.O_APPEND)
end = time.monotonic() + 20
while time.monotonic() < end:
    line |= {"time": time.clock_gettime(time.CLOCK_BOOTTIME), "pid": os.getpid()}
    os.write(file, (json.dumps(line) + chr(10)).encode())
    time.sleep(0.02)
"""


class Account:
    """Writes the lines of one attempt."""

    def __init__(self, path, context):
        self.path = path
        self.answer = {"attempt": context.attempt, "nonce": os.urandom(8).hex()}
        self._context = context
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def facts(self, event, **more):
        """Return a line as a dict; ``time`` is on the clock of :func:`uptime`."""
        uuid, attempt = str(self._context.uuid), self._context.attempt
        known = {"event": event, "time": uptime(), "instance": uuid, "attempt": attempt}
        return {**known, "pid": os.getpid(), **more}

    def write(self, event, **more):
        os.write(self.file, (json.dumps(self.facts(event, **more)) + "\n").encode())

    def work(self, seconds, *, stubborn=False):
        """Work for this many seconds, and unless ``stubborn``, check for interruptions."""
        end = uptime() + seconds
        while uptime() < end:
            self.write("tick")
            if not stubborn:
                self._context.check()
                time.sleep(TICK)
                continue
            with suppress(Interrupted):
                time.sleep(TICK)


@contextmanager
def recorded(path, context):
    """Yield the Account of an attempt, with its start before and its end after."""
    account = Account(path, context)
    account.write("start")
    try:
        yield account
        account.write("end", outcome="returned", nonce=account.answer["nonce"])
    except BaseException as error:
        account.write("end", outcome=type(error).__name__)
        raise
    finally:
        os.close(account.file)


def chaos_type(identifier, **parameters):
    """Declare a handler that gets its Account and returns what it wrote last.

    One that runs in a loop, beside others, is a coroutine function.
    """

    def decorate(handler):
        def attempt(context, *, path, **inputs):
            with recorded(path, context) as account:
                handler(context, account, **inputs)
            return account.answer | ({"padding": LARGE} if inputs.get("large") else {})

        async def attempt_beside(context, *, path, **inputs):
            with recorded(path, context) as account:
                await handler(context, account, **inputs)
            return account.answer

        is_beside = iscoroutinefunction(handler)
        made, own = (attempt_beside, BESIDE) if is_beside else (attempt, {})
        update_wrapper(made, handler, WRAPPER_ASSIGNMENTS, ())
        # Without the handler's own signature, which has no path.
        del made.__wrapped__
        return task_type(identifier, **{"timeout": 60, **own, **parameters})(made)

    return decorate


@chaos_type("chaos.beside")
async def beside(context, account, seconds):
    end = uptime() + seconds
    while uptime() < end:
        account.write("tick")
        await asyncio.sleep(TICK)


@chaos_type("chaos.beside_crash", max_restarts=1)
async def beside_crash(context, account, how):
    await asyncio.sleep(0.1)
    _crash(account, how)


@chaos_type("chaos.beside_block", timeout=1.0, cancel_grace=0.2, max_restarts=0)
async def beside_block(context, account):
    """Block the loop, so that no other attempt of it goes on."""
    await asyncio.sleep(0.1)
    account.work(30, stubborn=True)


@chaos_type("chaos.short")
def short(context, account, large=False):
    """End at once."""


@chaos_type("chaos.sleep")
def sleep(context, account, seconds, stubborn=False):
    account.work(seconds, stubborn=stubborn)


@chaos_type("chaos.compute", max_restarts=0)
def compute(context, account, seconds):
    end = uptime() + seconds
    while uptime() < end:
        account.write("tick")
        until = uptime() + TICK
        while uptime() < until:
            sum(range(1000))


@chaos_type("chaos.retry", max_retries=3)
def retry(context, account, failures, seconds):
    account.work(seconds)
    if context.attempt <= failures:
        raise Retry("turned away", after=0.1)


@chaos_type("chaos.fail", max_retries=1)
def fail(context, account, seconds):
    account.work(seconds)
    raise ValueError("went wrong")


@chaos_type("chaos.fatal", max_retries=3)
def fatal(context, account, seconds):
    account.work(seconds)
    raise Fatal("no such scene")


@chaos_type("chaos.talk")
def talk(context, account, seconds):
    for step in range(1, 6):
        context.log(f"step {step}")
        context.progress(step, 5)
        account.work(seconds / 5)
        if step == 3:
            with context.paused("nothing to say"):
                time.sleep(0.2)
    context.publish(str(context.attempt).encode(), name="attempt.txt")


@chaos_type("chaos.family", max_restarts=1)
def family(context, account, seconds):
    _with_child(account, seconds)


@chaos_type("chaos.still", stoppable=True)
def still(context, account, seconds):
    """Work with a child process, both of which are stopped by a signal to pause the task."""
    _with_child(account, seconds)


def _with_child(account, seconds):
    arguments = (account.path, json.dumps(account.facts("child")))
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", CHILD, *arguments])
    try:
        account.work(seconds)
    finally:
        child.kill()
        child.wait()


@chaos_type("chaos.alone")
def alone(context, account, seconds):
    account.work(seconds)


@chaos_type("chaos.row", transactional=True, max_retries=20)
def row(context, account, seconds):
    account.work(seconds / 2)
    Group.objects.create(name=f"{context.uuid}/{context.attempt}")
    account.work(seconds / 2)


@chaos_type("chaos.crash_once")
def crash_once(context, account, how):
    if context.attempt == 1:
        _crash(account, how)


@chaos_type("chaos.crash", max_restarts=1)
def crash(context, account, how):
    _crash(account, how)


def _crash(account, how):
    account.write("crash")
    if how == "exit":
        os._exit(7)
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(60)


@chaos_type("chaos.overrun", timeout=1.0, max_restarts=0)
def overrun(context, account):
    account.work(30, stubborn=True)


@task_type("chaos.slot")
def slot(context, *, slot):
    """End at once; one Instance for each slot of a schedule."""


@chaos_type("chaos.lined", max_restarts=1000, max_retries=1000)
def lined(context, account, seconds):
    """Work for this many seconds; the schedule runs one Instance at a time."""
    account.work(seconds)


@chaos_type("chaos.steps", max_restarts=1000, max_retries=1000)
def steps(context, account, seconds):
    """Charge a card in one step, sleep, and write a row in the transaction of another."""

    def charge():
        account.write("charged")
        account.work(seconds, stubborn=True)
        return context.attempt

    def book():
        Group.objects.create(name=f"{context.uuid}/{context.attempt}")
        account.work(seconds, stubborn=True)

    paid = context.step("charge", charge)
    # From here on it is kept: no later attempt may hear of another charge.
    account.write("paid", nonce=str(paid))
    context.sleep(seconds)
    context.step_in_transaction("book", book)
    account.work(seconds)
    account.write("paid", nonce=str(paid))


@task_type("chaos.node", timeout=60, max_retries=3)
def node(context, *, path, how, parts):
    """Return one more than the sum of the upstream nodes' values."""
    with recorded(path, context) as account:
        if how == "works":
            account.work(0.3)
        if how == "fails":
            raise Fatal("as it was to")
        if how == "retries" and context.attempt == 1:
            raise Retry("once more", after=0.1)
    return {"value": 1 + sum(parts)}

"""Handlers that hang, each in another way; a test looks for the line in which they do."""

import hashlib
import inspect
import itertools
import signal
import socket
import threading
import time

from atp import task_type

from .tasks_daemon import wait_for_file

# The line in which a handler hangs has this comment.
HERE = "# here"


@task_type("stacks.loops", timeout=120, max_restarts=0)
def loops(context):
    """Compute in Python without an end."""
    any(number * 3 % 1_000_003 < 0 for number in itertools.count())  # here


@task_type("stacks.calls_c", timeout=120, max_restarts=0)
def calls_c(context):
    """Compute in C code, where no Python signal handler runs."""
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 2**31 - 1)  # here


@task_type("stacks.reads", timeout=120, max_restarts=0)
def reads(context):
    """Read from a peer that sends nothing."""
    ours, _theirs = socket.socketpair()
    ours.recv(1)  # here


@task_type("stacks.locks", timeout=120, max_restarts=0)
def locks(context):
    """Take a lock a second time."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # here


@task_type("stacks.sleeps", timeout=120, max_restarts=0)
def sleeps(context):
    time.sleep(3600)  # here


@task_type("stacks.deadlocks", timeout=120, max_restarts=0)
def deadlocks(context):
    """Wait for a thread that waits for this one."""
    first, second = threading.Lock(), threading.Lock()
    both = threading.Barrier(2)

    def other():
        with second:
            both.wait()
            first.acquire()  # here

    with first:
        threading.Thread(target=other, daemon=True).start()
        both.wait()
        second.acquire()  # here


KINDS = (loops, calls_c, reads, locks, sleeps, deadlocks)


def places(kind):
    """Return the numbers of the lines in which a handler hangs."""
    lines, first = inspect.getsourcelines(kind.handler)
    return [first + number for number, line in enumerate(lines) if line.endswith(f"{HERE}\n")]


def expected(kind):
    """Return the lines that a stack has to show, as faulthandler writes them."""
    return [f'{__file__}", line {number} in ' for number in places(kind)]


times_out = task_type("stacks.times_out", timeout=1.0, max_restarts=0)(sleeps.handler)


@task_type("stacks.grows", timeout=120, max_memory="50MiB", max_restarts=0)
def grows(context):
    held = []
    while True:
        held.append(bytearray(1024 * 1024))
        time.sleep(0.002)


@task_type("stacks.takes_signals", timeout=120)
def takes_signals(context):
    """Handle signals, as some programs do, and hang."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if number < signal.SIGRTMIN:
            signal.signal(number, lambda *_: None)
    time.sleep(3600)  # here


@task_type("stacks.ignores_signals", timeout=120)
def ignores_signals(context, *, until):
    """Ignore all signals that can be ignored, until a file exists."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    wait_for_file(context, until, checks=False)


@task_type("stacks.waits_for_lock", timeout=120)
def waits_for_lock(context, *, key):
    """Wait for a lock in the database."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s) IS NULL", [key])  # here


@task_type("stacks.waits_paused", timeout=120)
def waits_paused(context):
    while True:
        context.check()
        time.sleep(0.01)

"""Handlers that the daemon's tests run; most of them write lines to a record.

All attempts append to the record file, so that tests can compare what happened with what the
database says.
"""

import contextvars
import ctypes
import decimal
import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

from django.db import transaction
from django.utils import timezone, translation

from atp import Defer, Fatal, Interrupted, Output, Retry, schedule, task_type
from atp.models import Type


def record(path, **facts):
    """Append one line to a record; a short write in append mode is atomic."""
    line = json.dumps({"pid": os.getpid(), "time": time.monotonic(), **facts}) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def wait_for_file(context, path, *, checks=True, deadline=60.0):
    end = time.monotonic() + deadline
    while not Path(path).exists():
        if checks:
            context.check()
        if time.monotonic() > end:
            raise TimeoutError(path)
        time.sleep(0.01)


SLEEPER = [sys.executable, "-c", "import time; time.sleep(300)"]


def start_sleepers(*options):
    """Start sleeping programs, one with each of these Popen options; return them."""
    return [subprocess.Popen(SLEEPER, **each) for each in options]


# One that is a child, one of another process group, one of another session.
FAMILY = {}, {"process_group": 0}, {"start_new_session": True}


@task_type("daemon.note")
def note(context, *, path, number=0):
    record(path, event="ran", number=number, attempt=context.attempt)


@task_type("daemon.slot")
def slot(context, *, slot, path):
    record(path, event="ran", slot=None if slot is None else slot.isoformat())


@task_type("daemon.noop")
def noop(context):
    """Do nothing."""


@task_type("daemon.reads", timeout=60, max_restarts=0)
def reads(context):
    """Return what a child program and the handler can read from the standard input."""
    return [subprocess.run(["cat"], stdout=subprocess.PIPE, text=True).stdout, sys.stdin.read()]


@task_type("daemon.unkept", retention=0)
def unkept(context, *, fails=False):
    """Return more than fits into the database, or fail on request."""
    context.log("hello")
    if fails:
        raise ValueError("it is to fail")
    return "x" * 100_000


# The same, committed together with the end.
unkept_together = task_type("daemon.unkept.together", retention=0, transactional=True)(
    unkept.handler
)


@task_type("SequenceSum", timeout=60, retention=600, max_restarts=3)
def sequence_sum(context, *terms):
    context.log(f"adding {len(terms)} terms")
    return sum(terms)


@task_type("daemon.wait", timeout=120)
def wait(context, *, path, until, number=0):
    record(path, event="start", number=number, attempt=context.attempt)
    wait_for_file(context, until)
    record(path, event="end", number=number, attempt=context.attempt)
    return number


once = task_type("daemon.once", timeout=120, max_restarts=0)(wait.handler)


@task_type("daemon.stubborn", timeout=120)
def stubborn(context, *, path, until):
    record(path, event="start", attempt=context.attempt)
    wait_for_file(context, until, checks=False)
    record(path, event="end", attempt=context.attempt)


@task_type("daemon.family", timeout=120)
def family(context, *, path, until):
    """Start a child, one in another process group, and one in another session; then wait."""
    children = start_sleepers(*FAMILY)
    record(path, event="start", children=[c.pid for c in children], attempt=context.attempt)
    wait_for_file(context, until)
    for child in children:
        child.kill()
        child.wait()


@task_type("daemon.spin", timeout=1.0, max_restarts=0)
def spin(context, *, path):
    """Start a child here and one in another session; spin in C code that holds the GIL."""
    children = [child.pid for child in start_sleepers({}, {"start_new_session": True})]
    record(path, event="start", children=children, attempt=context.attempt)
    # Unlike ctypes.CDLL, PyDLL holds the GIL for the length of the call.
    ctypes.PyDLL(None).sleep(300)


@task_type("daemon.crash", max_restarts=2)
def crash(context, *, path):
    record(path, event="start", attempt=context.attempt)
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


@task_type("daemon.crash_once", max_restarts=3)
def crash_once(context, *, path):
    """Exit the worker in the first attempt that starts; earlier claims may be handed back."""
    record(path, event="start", attempt=context.attempt)
    try:
        Path(f"{path}.{context.uuid}").touch(exist_ok=False)
    except FileExistsError:
        return context.attempt
    os._exit(7)


@task_type("daemon.retry", max_retries=3, backoff=0.05, backoff_max=0.1)
def retry(context, *, path, failures=2, how="retry"):
    record(path, event="start", attempt=context.attempt)
    if context.attempt > failures:
        return "at last"
    if how == "retry":
        raise Retry("turned away", after=0.05)
    raise RuntimeError("turned away")


@task_type("daemon.fatal", max_retries=3)
def fatal(context):
    raise Fatal("no such scene")


@task_type("daemon.error")
def error(context, *, words="went wrong"):
    raise ValueError(words)


# With a timeout that is shorter than the time limit of log handlers.
hasty_error = task_type("daemon.hasty_error", timeout=2.0, max_restarts=0)(error.handler)


@task_type("daemon.exit")
def leave(context):
    sys.exit(3)


@task_type("daemon.answer")
def answer(context, *, kind, size=10):
    return {
        "json": lambda: {"number": size},
        "text": lambda: Output("schöne Grüße", "text/plain; charset=utf-8"),
        "bytes": lambda: b"\x00\x01" * size,
        "png": lambda: Output(b"\x89PNG" + b"\x00" * size, "image/png"),
        "none": lambda: None,
        "unserializable": lambda: {"what": object()},
    }[kind]()


@task_type("daemon.talk")
def talk(context, *, lines=1):
    """Write output in all possible ways."""
    context.log("from the context", "WARNING")
    for number in range(lines):
        logging.getLogger("shop").info("from logging %d", number)
    logging.getLogger("shop").debug("not this")
    (context.scratch / "draft.txt").write_text("draft")
    published = context.publish(context.scratch / "draft.txt")
    context.progress(1, 4, "a quarter")
    return {"scratch": str(context.scratch), "published": published["path"]}


@task_type("daemon.progress")
def progress(context, *, until):
    context.progress(1, 2, "half")
    wait_for_file(context, until)


@task_type("daemon.steps", timeout=120)
def steps(context, *, folder, of=4):
    """Take one step after another, each when a file with its number is in the folder."""
    for number in range(1, of + 1):
        wait_for_file(context, Path(folder) / str(number))
        context.progress(number, of, f"step {number}")


@task_type("daemon.interrupted")
def interrupted(context, *, path, until):
    record(path, event="start", attempt=context.attempt)
    try:
        wait_for_file(context, until)
    except Interrupted:
        record(path, event="cleaned up", attempt=context.attempt)
        raise
    record(path, event="end", attempt=context.attempt)


@task_type("daemon.pid")
def pid(context):
    return os.getpid()


@task_type("daemon.retry_after", max_retries=3)
def retry_after(context, *, kind):
    """Ask for a retry after a delay of an unusual type."""
    raise Retry("later", after={"decimal": Decimal("0.5"), "long": 1e12, "longest": 1e14}[kind])


@task_type("daemon.again", max_retries=1000)
def again(context, *, times):
    if context.attempt <= times:
        raise Retry("again", after=0)


@task_type("daemon.garbled")
def garbled(context):
    """Fail with a message that no database column accepts."""
    raise Fatal("not text: \x00 \udc80")


@task_type("daemon.odd_level")
def odd_level(context, *, level):
    context.log("odd", level=level)


@task_type("daemon.fork")
def fork(context, *, path):
    """Fork, and let the child process return from the handler too."""
    child = os.fork()
    if child == 0:
        return "copy"
    record(path, event="forked", child=child)
    time.sleep(0.5)
    return "original"


_tenant = contextvars.ContextVar("tenant", default="")


@task_type("daemon.sets_context")
def sets_context(context):
    """Change context variables in ways that must not affect the next task."""
    translation.activate("de")
    timezone.activate("Asia/Tokyo")
    decimal.getcontext().prec = 3
    _tenant.set("seven")


@task_type("daemon.context")
def shown_context(context):
    zone = timezone.get_current_timezone_name()
    return [translation.get_language(), zone, str(Decimal(1) / 3), _tenant.get()]


@task_type("daemon.leaves_open")
def leaves_open(context, *, how, then="return"):
    if how == "autocommit":
        transaction.set_autocommit(False)
    else:
        transaction.atomic().__enter__()
    Type.objects.filter(identifier="daemon.leaves_open").update(handler="changed")
    if then == "defer":
        raise Defer("later", after=60)


@task_type("daemon.ticking", timeout=120)
def ticking(context, *, path, until, number=0):
    """Write a line every few milliseconds until a file exists, to show the time of the run."""
    facts = {"number": number, "attempt": context.attempt}
    record(path, event="start", **facts)
    end = time.monotonic() + 60
    while not Path(until).exists() and time.monotonic() < end:
        time.sleep(0.005)
        record(path, event="tick", **facts)
    record(path, event="end", **facts)
    return context.attempt


@task_type("daemon.nap", timeout=60)
def nap(context, *, path, number=0, seconds=0.1):
    time.sleep(seconds)
    record(path, event="end", number=number, attempt=context.attempt)


@task_type("daemon.alone", max_restarts=50)
def alone(context, *, path, seconds=0.02):
    """Write whether another attempt runs at the same time, using a file lock."""
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_alone = True
    except BlockingIOError:
        is_alone = False
    record(path, event="start", alone=is_alone)
    time.sleep(seconds)
    record(path, event="end")
    os.close(descriptor)


@task_type("daemon.kin", timeout=120, keep_processes=True)
def kin(context, *, path, until, number=0):
    """Start programs and a copy of this process that write lines while they live; then wait."""
    facts = {"number": number, "attempt": context.attempt}
    children = [child.pid for child in start_sleepers({}, {"start_new_session": True})]
    copy = os.fork()
    if not copy:
        while not Path(until).exists():
            record(path, event="tick", **facts)
            time.sleep(0.01)
        os._exit(0)
    record(path, event="start", children=[*children, copy], **facts)
    record(path, event="tick", **facts)
    wait_for_file(context, until)
    for pid in [*children, copy]:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@task_type("daemon.talkative", timeout=120)
def talkative(context, *, path, until, pause=0.2):
    """Publish a file, then report progress and log lines until a file exists."""
    context.publish(b"first", "first.txt")
    record(path, event="start", attempt=context.attempt)
    lines = 0
    while not Path(until).exists():
        context.check()
        lines += 1
        context.progress(0.5, message=f"line {lines}")
        context.log(f"line {lines}")
        time.sleep(pause)
    context.publish(b"last", "last.txt")
    record(path, event="end", attempt=context.attempt)
    return lines


schedule("of-the-code", noop, cron="@yearly")


@task_type("daemon.rest")
def rest(context, *, seconds):
    time.sleep(seconds)


@task_type("daemon.on_fast_disk", needs={"disk": "fast"})
def on_fast_disk(context, *, path):
    record(path, event="ran", who=context.worker)


@task_type("daemon.trains", resources={"gpu": 1, "memory": "1GiB"})
def trains(context, *, path, seconds=0.0):
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    record(path, event="start", gpu=1, memory=1, devices=context.devices, visible=visible)
    time.sleep(seconds)
    record(path, event="end", gpu=1, memory=1)


@task_type("daemon.loads", resources={"memory": "3GiB"})
def loads(context, *, path, seconds=0.0):
    record(path, event="start", gpu=0, memory=3, devices=context.devices)
    time.sleep(seconds)
    record(path, event="end", gpu=0, memory=3)

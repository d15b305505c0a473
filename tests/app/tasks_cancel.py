"""Handlers that are cancelled or defer themselves; each writes a line to a record."""

import hashlib
import logging
import time

from django.contrib.auth.models import Group

from atp import Defer, Interrupted, task_type

from .tasks_daemon import FAMILY, record, start_sleepers, wait_for_file


@task_type("cancel.sleep", timeout=120)
def sleep(context, *, path):
    try:
        record(path, event="start", attempt=context.attempt)
        time.sleep(60)
    finally:
        record(path, event="cleaned up", attempt=context.attempt)


@task_type("cancel.compute", timeout=120)
def compute(context, *, path):
    end = time.monotonic() + 60
    try:
        record(path, event="start", attempt=context.attempt)
        while time.monotonic() < end:
            pass
    finally:
        record(path, event="cleaned up", attempt=context.attempt)


@task_type("cancel.c_code", timeout=120)
def c_code(context, *, path):
    """Block in C code, where no Python signal handler runs."""
    record(path, event="start", attempt=context.attempt)
    hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 2**31 - 1)
    record(path, event="end", attempt=context.attempt)


@task_type("cancel.children", timeout=120)
def children(context, *, path):
    started = start_sleepers(*FAMILY)
    record(path, event="start", children=[c.pid for c in started], attempt=context.attempt)
    for child in started:
        child.wait()


@task_type("cancel.stubborn", timeout=120, cancel_grace=0.5)
def stubborn(context, *, path, children=()):
    end = time.monotonic() + 60
    record(path, event="start", children=[c.pid for c in children], attempt=context.attempt)
    while time.monotonic() < end:
        try:
            time.sleep(60)
        except BaseException:
            record(path, event="ignored", attempt=context.attempt)


@task_type("cancel.stubborn_parent", timeout=120, cancel_grace=0.5)
def stubborn_parent(context, *, path):
    stubborn.handler(context, path=path, children=start_sleepers(*FAMILY[::2]))


@task_type("cancel.wraps", timeout=120, max_retries=3)
def wraps(context, *, path):
    """Turn the interruption into another exception, as a library might."""
    record(path, event="start", attempt=context.attempt)
    try:
        time.sleep(60)
    except BaseException as error:
        raise OSError("the pipe broke") from error


@task_type("cancel.finishes", timeout=120)
def finishes(context, *, path):
    """Finish despite the interruption."""
    record(path, event="start", attempt=context.attempt)
    try:
        time.sleep(60)
    except Interrupted:
        logging.getLogger(__name__).warning("almost done")
    return "done"


@task_type("cancel.writes", timeout=120, transactional=True)
def writes(context, *, path):
    Group.objects.create(name=f"row of {context.uuid}")
    context.log("written")
    sleep(context, path=path)


@task_type("cancel.defer", timeout=120)
def defer(context, *, path, times=2, after=0.05):
    """Ask to be deferred this many times."""
    record(path, event="ran", attempt=context.attempt)
    if context.attempt <= times:
        raise Defer("the mirror is away", after=after)


@task_type("cancel.defer_in_a_transaction", timeout=120, transactional=True)
def defer_in_a_transaction(context):
    Group.objects.create(name=f"{context.attempt} of {context.uuid}")
    if context.attempt == 1:
        raise Defer(after=0.05)


@task_type("cancel.note", timeout=120)
def note(context, *, path, until=""):
    """Write a line, and wait until a file exists if ``until`` names one."""
    record(path, event="ran", attempt=context.attempt)
    if until:
        wait_for_file(context, until)

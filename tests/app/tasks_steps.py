"""Handlers with steps that the daemon's tests run."""

import os
import time
from datetime import datetime, timedelta, tzinfo

from django.contrib.auth.models import Group
from django.db import transaction

from atp import Fatal, Retry, task_type

from .tasks_daemon import record, wait_for_file


def charge(path, amount, attempt):
    """Charge a card, which happens outside the database and cannot be rolled back."""
    record(path, event="charged", amount=amount, attempt=attempt)
    return {"amount": amount, "receipt": f"receipt-{attempt}"}


def book(context, number=0):
    return Group.objects.create(name=f"{number}/{context.attempt}").name


@task_type("steps.charging", max_retries=3, backoff=0.01)
def charging(context, *, path, raising=1):
    paid = context.step("charge", charge, path, 5, attempt=context.attempt)
    if context.attempt <= raising:
        raise Retry("once more")
    return paid


@task_type("steps.waiting", max_restarts=5, timeout=120, max_retries=2, backoff=0.01)
def waiting(context, *, path, until, after=False):
    """Charge in a step that waits for a file; with ``after`` the wait follows the step."""

    def slowly():
        record(path, event="charged", attempt=context.attempt)
        if not after:
            wait_for_file(context, until)
        return context.attempt

    value = context.step("charge", slowly)
    record(path, event="kept", attempt=context.attempt)
    if after:
        wait_for_file(context, until)
    return value


@task_type("steps.booking", max_restarts=5, timeout=120)
def booking(context, *, path, until):
    """Write a row in a step's transaction; wait for a file inside the step and after it."""

    def slowly():
        name = book(context)
        record(path, event="written", attempt=context.attempt)
        wait_for_file(context, until)
        return name

    name = context.step_in_transaction("book", slowly)
    record(path, event="booked", attempt=context.attempt)
    wait_for_file(context, f"{until}-after")
    return name


@task_type("steps.block", max_retries=2, backoff=0.01)
def block(context, *, looks=True):
    with context.step_in_transaction("book") as step:
        if not (looks and step.is_done):
            step.result = book(context)
    if context.attempt == 1:
        raise Retry("once more")
    return step.result


@task_type("steps.sleeping", max_retries=2, backoff=0.01)
def sleeping(context, *, path, seconds, fails=False):
    context.step("first", charge, path, 1, context.attempt)
    context.sleep(timedelta(seconds=seconds))
    context.step("second", charge, path, 2, context.attempt)
    if fails:
        raise Fatal("after the sleep")
    return context.attempt


@task_type("steps.looping")
def looping(context, *, path, names):
    return [context.step("charge", charge, path, 1, context.attempt, key=name) for name in names]


@task_type("steps.doubled")
def doubled(context, *, path):
    context.step("charge", charge, path, 1, context.attempt)
    context.step("charge", charge, path, 2, context.attempt)


@task_type("steps.bad", max_retries=5, backoff=0.01)
def bad(context, *, path, size=0):
    """Return a step result that cannot be stored: of a wrong type, too long, or one that raises."""

    def result():
        record(path, event="charged", attempt=context.attempt)
        if size < 0:
            return datetime(2030, 1, 1, tzinfo=tzinfo())
        return "x" * size if size else object()

    context.step("charge", result)


@task_type("steps.inside")
def inside(context, *, path):
    with transaction.atomic():
        context.step("charge", charge, path, 1, context.attempt)


@task_type("steps.inside_transactional", transactional=True)
def inside_transactional(context, *, path):
    context.step("charge", charge, path, 1, context.attempt)


@task_type("steps.stopped", stoppable=True, timeout=600)
def stopped(context, *, until):
    number = 0
    while not os.path.exists(until):
        context.step("tick", int, number, key=number)
        number += 1
        time.sleep(0.001)
    return number

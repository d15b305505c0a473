"""Types for the tests of the testing kit."""

import contextvars
import os
import signal

from django.contrib.auth.models import Group
from django.core.mail import send_mail
from django.db import IntegrityError, connection, transaction
from django.utils import translation

from atp import Defer, Fatal, Retry, queue, task_type

TENANT = contextvars.ContextVar("TENANT", default="none")


class Refused(Exception):
    """A service refused the request."""


@task_type("kit.group")
def group(context, *, name: str):
    context.log(f"making {name}")
    return Group.objects.create(name=name).pk


@task_type("kit.mail")
def mail(context, *, to: str):
    send_mail("subject", "body", "from@example.com", [to])


@task_type("kit.refused", max_retries=2, backoff=3600)
def refused(context, *, name: str = ""):
    if name:
        Group.objects.create(name=name)
    raise Refused("no")


@task_type("kit.later", max_retries=1, backoff=3600)
def later(context):
    if context.attempt == 1:
        raise Retry("busy", after=3600)
    return context.attempt


@task_type("kit.deferred")
def deferred(context):
    raise Defer("not yet", after=3600)


@task_type("kit.fatal")
def fatal(context):
    raise Fatal("never")


@task_type("kit.chain")
def chain(context, *, left: int):
    """Enqueue the next task until ``left`` is 0; -1 never ends."""
    if left:
        chain.enqueue(left=left - 1)


@task_type("kit.on_commit")
def on_commit(context, *, name: str):
    with transaction.atomic():
        transaction.on_commit(lambda: group.enqueue(name=name))


@task_type("kit.durable")
def durable(context, *, name: str):
    with transaction.atomic(durable=True):
        Group.objects.create(name=name)


@task_type("kit.left_open")
def left_open(context, *, name: str):
    transaction.atomic().__enter__()
    Group.objects.create(name=name)


@task_type("kit.doubled")
def doubled(context, *, name: str):
    for _ in range(2):
        Group.objects.create(name=name)


@task_type("kit.caught")
def caught(context, *, name: str):
    try:
        doubled.handler(context, name=name)
    except IntegrityError:
        return "caught"


@task_type("kit.caught_well")
def caught_well(context, *, name: str):
    try:
        with transaction.atomic():
            doubled.handler(context, name=name)
    except IntegrityError:
        return "caught"


@task_type("kit.transactional", transactional=True)
def transactional(context, *, name: str, fails: bool = False):
    Group.objects.create(name=name)
    context.log("written")
    if fails:
        raise Refused("no")
    return name


@task_type("kit.messy")
def messy(context):
    TENANT.set("of the handler")
    translation.activate("de")
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os.chdir("/")
    os.umask(0o777)


@task_type("kit.context")
def seen(context):
    """Return the context variables that the handler finds."""
    return [TENANT.get(), translation.get_language()]


@task_type("kit.steps")
def steps(context, *, name: str):
    charged = context.step("charge", _charge, name)
    with context.step_in_transaction("write") as step:
        if not step.is_done:
            Group.objects.create(name=name)
    return charged


CHARGED = []


def _charge(name):
    CHARGED.append(name)
    return len(CHARGED)


@task_type("kit.sleeper")
def sleeper(context):
    context.step("first", str)
    context.sleep(86400)
    return "awake"


@task_type("kit.cancels_itself")
def cancels_itself(context):
    queue.cancel(context.uuid, by="a test")
    context.check()


@task_type("kit.file")
def file(context):
    path = context.scratch / "file.txt"
    path.write_text("content")
    context.publish(path)
    context.progress(1, 2)
    return str(path)


@task_type("kit.unserializable")
def unserializable(context):
    return object()


@task_type("kit.typed")
def typed(context, *, values: tuple, when: object = None):
    """Return the class names of the arguments."""
    return [type(values).__name__, type(when).__name__]


@task_type("kit.state")
def state(context):
    found = [queue.get(context.uuid).state]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SHOW enable_seqscan")
            found += cursor.fetchone()
    return found


@task_type("kit.waits")
def waits(context):
    child = group.enqueue(name="child")
    with context.paused("for the child"):
        child.refresh_from_db()
        return child.state


@task_type("kit.nothing", retention=0)
def nothing(context):
    """Return nothing; the Type keeps no ended Instances."""


@task_type("kit.once", max_restarts=0)
def once(context):
    """Return nothing; the Type allows no restart after a loss."""

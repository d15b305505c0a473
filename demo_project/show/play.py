"""Runs the whole demo, from starting the processes to the report."""

import shutil
import time
from contextlib import ExitStack

from django.core.management import call_command
from django.db import DatabaseError, connection

from atp.conf import settings

from . import DemoError, programme, welcome
from .board import LineBoard, board
from .children import Child, answer, start_web

LOOK_EVERY = 0.2
# Seconds to wait for a child process beyond the grace that a daemon gives to running tasks.
PATIENCE = 15
# The number of the user's Tasks that are watched at once. Others follow as these end.
AT_ONCE = 200


def play(options, directory, *, manage):
    """Start all processes, run the demo's tasks, and return the exit status."""
    # At the end the directory then contains only pictures from this run.
    shutil.rmtree(directory / "pictures", ignore_errors=True)
    password = prepare(directory)
    with ExitStack() as stack:
        web, port = start_web(options.port, manage=manage, log=directory / "web.log")
        stack.callback(web.stop, patience=PATIENCE)
        arguments = [manage, "atpd", "--processes", options.processes]
        daemon = Child("daemon", arguments, log=directory / "atpd.log")
        stack.callback(_stop, daemon)
        children = [web, daemon]
        for executor in settings.EXECUTORS:
            arguments = [manage, "atpd", "--executor", executor]
            children.append(Child(executor, arguments, log=directory / f"atpd-{executor}.log"))
            stack.callback(children[-1].stop, patience=settings.GRACE + PATIENCE)
        print(*welcome.where_to_look(port, password, directory), "", sep="\n", flush=True)
        instances = programme.enqueue()
        deadline = time.monotonic() + options.deadline if options.exit else None
        instances = follow(instances, children, deadline)
        failed = report(instances, directory)
        if not options.exit:
            print(*welcome.what_to_try(manage), "", sep="\n", flush=True)
            go_on(instances[-1].pk, children, directory)
        if answer(port, "/admin/login/") != 200:
            raise DemoError(f"The web server does not answer, see {web.log}.")
    if daemon.status != 0:
        raise DemoError(f"The daemon ended with status {daemon.status}, see {daemon.log}.")
    return 1 if failed else 0


def prepare(directory):
    """Migrate the database, create the demo's user, and return the user's password."""
    print(f"Preparing the database ({connection.vendor}) …", flush=True)
    try:
        call_command("migrate", verbosity=0, interactive=False)
        return welcome.make_login(directory)
    except DatabaseError as error:
        raise DemoError(f"The demo cannot use the database: {error}") from error


def _stop(daemon):
    if daemon.status is None:
        print("Stopping the daemon after its running tasks …", flush=True)
    daemon.stop(patience=settings.GRACE + PATIENCE)


def follow(instances, children, deadline):
    """Show progress until all Instances have ended or the deadline is reached.

    Return the Instances in their latest state.
    """
    shown = board()
    keys = [instance.pk for instance in instances]
    while True:
        instances = programme.selected(pk__in=keys)
        shown.show(instances)
        if all(instance.is_terminal for instance in instances):
            return instances
        _check(children)
        if deadline is not None and time.monotonic() > deadline:
            print("\nThe deadline has passed.", flush=True)
            return instances
        time.sleep(LOOK_EVERY)


def report(instances, directory):
    """Write pictures to files, print a table of results, and return True if a task went wrong."""
    pictures, problems_of = {}, {}
    for instance in instances:
        picture = programme.save_picture(instance, directory / "pictures")
        if picture is not None:
            pictures[instance.pk] = picture
        found = programme.problems(instance, picture)
        if found:
            problems_of[instance.pk] = found
    print("", *programme.table(instances, pictures, problems_of), "", sep="\n", flush=True)
    return bool(problems_of)


def go_on(last, children, directory):
    """Show the Instances that the user enqueues after the Instance with key ``last``.

    Continue until an interrupt.
    """
    shown = LineBoard()
    watched = set()
    while True:
        _check(children)
        room = AT_ONCE - len(watched)
        new = programme.selected(room, programme.NOT_OF_A_SCHEDULE, pk__gt=last)
        if new:
            last = new[-1].pk
        instances = [*programme.selected(pk__in=watched), *new]
        shown.show(instances)
        watched = {instance.pk for instance in instances if not instance.is_terminal}
        for instance in instances:
            if instance.is_terminal:
                picture = programme.save_picture(instance, directory / "pictures")
                if picture is not None:
                    print(f"          → {picture}", flush=True)
        time.sleep(LOOK_EVERY)


def _check(children):
    for child in children:
        child.check()

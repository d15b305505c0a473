"""Handlers of graphs that are undone after a failure; the first ones are from docs/graphs.md."""

import time

from atp import Fatal, task_type
from tests import environment

from .tasks_daemon import record

LIMIT = 500


def diary():
    """Return the file in which travel agencies record their requests."""
    return environment.folder() / "saga.jsonl"


def reserve(what):
    record(diary(), reserved=what)
    return f"{what}-17"


def give_back(booking):
    record(diary(), given_back=booking)


def charge(amount):
    if amount > LIMIT:
        raise Fatal("the card is refused")


@task_type("trip.book")
def book(context, *, what):
    return {"booking": reserve(what)}


@task_type("trip.unbook")
def unbook(context, *, what):
    give_back(context.undoes.output["booking"])


@task_type("trip.rent")
def rent(context, *, days):
    return {"car": reserve("car")}


@task_type("trip.return_car")
def return_car(context, *, car):
    give_back(car)


@task_type("trip.pay")
def pay(context, *, amount):
    charge(amount)


@task_type("saga.do")
def do(context, *, path, name, broken=False):
    record(path, did=name)
    if broken:
        raise Fatal("it cannot be done")
    return name


@task_type("saga.undo")
def undo(context, *, path, name, broken=False):
    """Undo what :func:`do` did with the same arguments, with a line before and after."""
    record(path, begun=name, attempt=context.attempt)
    assert context.undoes.output == name
    time.sleep(0.1)
    record(path, undid=name, attempt=context.attempt)

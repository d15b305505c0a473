"""The handlers of the old release, and what its web processes enqueue."""

from atp import task_type
from tests.deploys.hurry import hurry

hurry()
RELEASE = "old"


@task_type("shop.gains")
def gains(context, *, order):
    return RELEASE


@task_type("shop.loses")
def loses(context, *, order, colour="red"):
    return RELEASE


@task_type("shop.renames")
def renames(context, *, order, mail):
    return RELEASE


@task_type("shop.requires")
def requires(context, *, order, zoom=10):
    return RELEASE


@task_type("shop.adapts")
def adapts(context, *, order, mail):
    return RELEASE


@task_type("shop.books", transactional=True)
def books(context, *, order, colour):
    return RELEASE


@task_type("shop.hillshade")
def hillshade(context, *, order):
    return RELEASE


@task_type("shop.goes")
def goes(context, *, order):
    return RELEASE


CALLS = {
    gains: {"order": 1},
    loses: {"order": 1, "colour": "blue"},
    renames: {"order": 1, "mail": "a@example.org"},
    requires: {"order": 1},
    adapts: {"order": 1, "mail": "a@example.org"},
    books: {"order": 1, "colour": "blue"},
    hillshade: {"order": 1},
    goes: {"order": 1},
}

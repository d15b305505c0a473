"""The handlers of the new release, and what its web processes enqueue."""

from atp import task_type
from tests.deploys.hurry import hurry

hurry()
RELEASE = "new"


@task_type("shop.gains")
def gains(context, *, order, note=""):
    return RELEASE


@task_type("shop.loses")
def loses(context, *, order):
    return RELEASE


@task_type("shop.renames")
def renames(context, *, order, email):
    return RELEASE


@task_type("shop.requires")
def requires(context, *, order, zoom):
    return RELEASE


@task_type("shop.adapts")
def adapts(context, *, order, email):
    return RELEASE


@adapts.adapt
def _(inputs):
    inputs["email"] = inputs.pop("mail")
    return inputs


@task_type("shop.books", transactional=True)
def books(context, *, order):
    return RELEASE


@task_type("shop.shade", formerly=["shop.hillshade"])
def shade(context, *, order):
    return RELEASE


@task_type("shop.comes")
def comes(context, *, order):
    return RELEASE


CALLS = {
    gains: {"order": 1, "note": "quickly"},
    loses: {"order": 1},
    renames: {"order": 1, "email": "a@example.org"},
    requires: {"order": 1, "zoom": 3},
    adapts: {"order": 1, "email": "a@example.org"},
    books: {"order": 1},
    shade: {"order": 1},
    comes: {"order": 1},
}

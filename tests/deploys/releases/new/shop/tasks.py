"""The handlers of the new release, and the tasks that its web processes enqueue."""

from atp import task_type
from tests.deploys import hurry  # noqa: F401 (it shortens delays)

RELEASE = "new"
gains = task_type("shop.gains")(lambda context, *, order, note="": RELEASE)
loses = task_type("shop.loses")(lambda context, *, order: RELEASE)
renames = task_type("shop.renames")(lambda context, *, order, email: RELEASE)
requires = task_type("shop.requires")(lambda context, *, order, zoom: RELEASE)
adapts = task_type("shop.adapts")(lambda context, *, order, email: RELEASE)
books = task_type("shop.books", transactional=True)(lambda context, *, order: RELEASE)
shade = task_type("shop.shade", formerly=["shop.hillshade"])(lambda context, *, order: RELEASE)
comes = task_type("shop.comes")(lambda context, *, order: RELEASE)


@adapts.adapt
def _(inputs):
    inputs["email"] = inputs.pop("mail")
    return inputs


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

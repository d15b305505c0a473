"""The handlers of the old release, and the tasks that its web processes enqueue."""

from atp import task_type
from tests.deploys import hurry  # noqa: F401 (it shortens delays)

RELEASE = "old"
gains = task_type("shop.gains")(lambda context, *, order: RELEASE)
loses = task_type("shop.loses")(lambda context, *, order, colour="red": RELEASE)
renames = task_type("shop.renames")(lambda context, *, order, mail: RELEASE)
requires = task_type("shop.requires")(lambda context, *, order, zoom=10: RELEASE)
adapts = task_type("shop.adapts")(lambda context, *, order, mail: RELEASE)
books = task_type("shop.books", transactional=True)(lambda context, *, order, colour: RELEASE)
hillshade = task_type("shop.hillshade")(lambda context, *, order: RELEASE)
goes = task_type("shop.goes")(lambda context, *, order: RELEASE)
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

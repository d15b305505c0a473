"""The answer of a claim's statement, read."""

import json
from dataclasses import dataclass, replace
from operator import itemgetter

from ...rows.querysets import CLAIMING_ORDER
from ..claim_order import RowOrder
from ..values import Claimed

# The columns of a row: whose turn it came in, when it was due, its Type; and those of the
# claimed Task.
PLACE, DUE, TYPE, INSTANCE = range(4)
TASK = slice(INSTANCE, 15)
COLLECTION = INSTANCE + Claimed._fields.index("collection")
PRIORITY = INSTANCE + Claimed._fields.index("priority")
# In the first row, which is of the claim itself, this stands where others have their inputs.
_OF_CLAIM = INSTANCE + Claimed._fields.index("data")
# Columns of claim_first.sql behind these: when it was claimed, and the Type's parameters.
AT, PARAMETERS = 15, 16

lane_of = itemgetter(TYPE, COLLECTION)
# By the lane's place, then in claiming order within the lane.
_ORDER = RowOrder(
    ("place", *CLAIMING_ORDER),
    {"place": PLACE, "priority": PRIORITY, "due_at": DUE, "instance_id": INSTANCE},
)


@dataclass(kw_only=True)
class Look:
    """The Tasks that a claim has found, and facts about the claim; ``rows`` are in its order."""

    now: float
    rows: list
    name: str
    late: bool | None
    # Parameters by the key of their Type, as text.
    types: dict
    # How long it took to find what is due, in seconds; None if nothing is.
    looked: float | None
    steps: int
    cut: list | None
    limited: list | None
    # The number that were locked and not claimed, as they had just been handed back.
    missed: int

    @classmethod
    def of(cls, rows):
        of_claim, *rows = rows
        look = cls(now=of_claim[DUE], rows=rows, **json.loads(of_claim[_OF_CLAIM]))
        look.sort()
        return look

    def sort(self):
        _ORDER.sort(self.rows)

    def followed_by(self, later):
        """Return this and another look as one: the rows of both, the facts of the other."""
        return replace(later, rows=self.rows + later.rows, types=self.types | later.types)

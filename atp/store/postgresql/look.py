"""The rows that the claim statement returns, as an object."""

import json
from dataclasses import dataclass, replace
from operator import itemgetter

from ...querysets import CLAIMING_ORDER
from ..sorting import RowOrder
from ..values import Claimed

# The columns of a row: the place of its lane in the claim, its due time, its Type; and those of
# the claimed Task.
PLACE, DUE, TYPE, INSTANCE = range(4)
TASK = slice(INSTANCE, 15)
COLLECTION = INSTANCE + Claimed._fields.index("collection")
PRIORITY = INSTANCE + Claimed._fields.index("priority")
# The first row is about the claim itself: its facts are in the column of the inputs.
_OF_CLAIM = INSTANCE + Claimed._fields.index("data")
# More columns of claim_first.sql: the time of the claim, and the Type's parameters.
AT, PARAMETERS = 15, 16

lane_of = itemgetter(TYPE, COLLECTION)
# By the place of the lane, then in claim order within the lane.
_ORDER = RowOrder(
    ("place", *CLAIMING_ORDER),
    {"place": PLACE, "priority": PRIORITY, "due_at": DUE, "instance_id": INSTANCE},
)


@dataclass(kw_only=True)
class Look:
    """The Tasks that a claim has found, in claim order in ``rows``, and facts about the claim."""

    now: float
    rows: list
    name: str
    late: bool | None
    # The Types' parameters as text, by the key of the Type.
    types: dict
    # In seconds: how long it took to find due Tasks; None if none is due.
    looked: float | None
    steps: int
    cut: list | None
    barren: list | None
    limited: list | None
    # The number of Tasks that were locked but not claimed: they had just been handed back.
    missed: int

    @classmethod
    def of(cls, rows):
        of_claim, *rows = rows
        look = cls(now=of_claim[DUE], rows=rows, **json.loads(of_claim[_OF_CLAIM]))
        look.sort()
        return look

    @property
    def has_enough(self):
        """Whether the walk ended since it had found enough: what it found may be locked."""
        return self.looked is not None and not self.steps

    def sort(self):
        _ORDER.sort(self.rows)

    def followed_by(self, later):
        """Return this look and a later one as one: the rows of both, the facts of the later."""
        return replace(later, rows=self.rows + later.rows, types=self.types | later.types)

"""The store for SQLite: frequent work in statements that take many rows each.

Rare work is left to the portable store.
"""

from functools import cached_property

from ..common.store import ORMStore
from .claims import Claims, Limited
from .daemons import Daemons
from .enqueueing import Enqueueing
from .graphs import GraphEnds, Graphs
from .listener import Wakeups
from .records import Records
from .removal import Removal


class SQLiteStore(Limited, Claims, Daemons, Wakeups, ORMStore):
    """The store contract, with statements of SQLite's own."""

    @cached_property
    def graphs(self):
        return Graphs(self)

    @cached_property
    def graph_ends(self):
        return GraphEnds(self)

    @cached_property
    def removal(self):
        return Removal(self)

    @cached_property
    def enqueueing(self):
        return Enqueueing(self)

    @cached_property
    def records(self):
        return Records(self)

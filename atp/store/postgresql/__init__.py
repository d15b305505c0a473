"""The store for PostgreSQL: frequent work in one statement each.

Rare work is left to the portable store.
"""

from functools import cached_property

from ..common.store import ORMStore
from .claims import Claims, Limited
from .daemons import Daemons, Telling
from .enqueueing import Enqueueing
from .graphs import GraphEnds, Graphs
from .locks import Locks
from .records import Records, Steps
from .removal import Inputs, Removal


class PostgreSQLStore(Locks, Limited, Claims, Daemons, Telling, ORMStore):
    """The store contract, with statements of PostgreSQL's own."""

    @cached_property
    def graphs(self):
        return Graphs(self)

    @cached_property
    def graph_ends(self):
        return GraphEnds(self)

    @cached_property
    def inputs(self):
        return Inputs(self)

    @cached_property
    def steps(self):
        return Steps(self)

    @cached_property
    def removal(self):
        return Removal(self)

    @cached_property
    def enqueueing(self):
        return Enqueueing(self)

    @cached_property
    def records(self):
        return Records(self)

"""The store for PostgreSQL: frequent work in one statement each.

Rare work is left to the portable store.
"""

from functools import cached_property

from ..common import ORMStore
from .claims import Claims
from .daemons import Daemons
from .driver.locks import Locks
from .enqueueing import Enqueueing
from .graphs import Graphs
from .inputs import Inputs
from .limits import Limited
from .notify import Telling
from .records import Records
from .removal import Removal
from .steps import Steps


class PostgreSQLStore(
    Locks, Enqueueing, Limited, Claims, Records, Removal, Daemons, Telling, ORMStore
):
    """The store contract, with statements of PostgreSQL's own."""

    @cached_property
    def graphs(self):
        return Graphs(self)

    @cached_property
    def inputs(self):
        return Inputs(self)

    @cached_property
    def steps(self):
        return Steps(self)

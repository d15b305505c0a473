"""The portable store: Django's ORM, on any database that Django supports.

There is one mixin for each noun. Shared code is in :mod:`.base`; only :mod:`.mover` applies the
transition table.
"""

from functools import cached_property

from .claims import Claims
from .control.asks import Asks
from .control.changing import Changing
from .control.filling import Filling
from .control.orders import Orders
from .control.setting import Setting
from .daemons import Daemons
from .enqueueing import Enqueueing
from .errors import Errors
from .graphs import Graphs
from .hooks import Hooks
from .inputs import Inputs
from .records import Records
from .rehearsals import Rehearsals
from .removal import Removal
from .scan import Scanning
from .schedules import Schedules
from .statistics import Statistics
from .steps import Steps
from .tailers import Tailers
from .types import Types


class ORMStore(
    *(Types, Enqueueing, Daemons, Rehearsals, Claims, Records, Removal, Scanning),
    *(Setting, Filling, Orders, Asks, Changing),
):
    """The store contract in portable Django ORM."""

    @cached_property
    def schedules(self):
        return Schedules(self)

    @cached_property
    def steps(self):
        return Steps(self)

    @cached_property
    def graphs(self):
        return Graphs(self)

    @cached_property
    def hooks(self):
        return Hooks(self)

    @cached_property
    def errors(self):
        return Errors(self)

    @cached_property
    def inputs(self):
        return Inputs(self)

    @cached_property
    def statistics(self):
        return Statistics(self)

    @cached_property
    def tailers(self):
        return Tailers(self)

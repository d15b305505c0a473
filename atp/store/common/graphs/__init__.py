"""Graphs in the portable store: submitting them, settling the ends of their nodes."""

from ...protocol import Graphs as Contract
from .extending import Extending
from .failing import Failures
from .recounting import Recounting
from .removing import Removing
from .reviving import Reviving
from .settling import Settling
from .submitting import Submitting
from .undoing import Undoing
from .whole import Whole


class Graphs(
    *(Submitting, Extending, Failures, Settling, Reviving, Recounting, Removing, Whole, Undoing),
    Contract,
):
    """The verbs of graphs, as the store's part ``graphs``."""

    def __init__(self, store):
        self.store = store
        self.rows = store.rows
        # Where the next purge(), fail_dependants() and undo() go on, so that all graphs have their
        # turn.
        self.purge_mark = None
        self.failing_mark = self.undoing_mark = 0
        # The orders in which graphs are being undone, by the key of the graph.
        self.undo_orders = {}

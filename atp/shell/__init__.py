"""The subcommands of ``manage.py atp``, a module for each noun."""

from .check import Check
from .enqueueing import Enqueue
from .explaining.metrics import Metrics
from .explaining.statistics import Statistics
from .explaining.why import Why
from .failures.deleting import Delete
from .failures.errors import Error, Errors
from .graphs import Graph, Graphs
from .importing.command import ImportBeat
from .listing import List
from .orders import Tell
from .schedules import Schedule, Schedules
from .scopes import Downstream, Downstreams, Gate, Gates, Limit, Limits
from .selections import Cancel, Redrive
from .show import Show
from .status import Daemons, Status
from .tailing.commands import Tailer, Tailers
from .types import OneType, Types
from .verbs import subcommands as of_verbs


def subcommands():
    """Return the Subcommands in the order of the help."""
    return (
        *(Status, Check, Types, OneType, Statistics, Metrics, List, Show, Why, Enqueue),
        *(
            Redrive,
            Cancel,
            *of_verbs(),
            Delete,
            Gates,
            Gate,
            Limits,
            Limit,
            Downstreams,
            Downstream,
        ),
        *(Schedules, Schedule, ImportBeat, Tailers, Tailer, Graphs, Graph, Errors, Error),
        *(Daemons, Tell),
    )

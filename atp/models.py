"""The index of the models: Django finds them here, and all other code imports them from here.

RFC 14 has six of them: Type, Instance, Inputs, Response, LogRecord and Task. Only the store
writes Task, Instance.state and LogRecord; all other code reads them. The models are defined in
:mod:`atp.rows`.
"""

from .rows.control import Gate, Limit
from .rows.daemon import Daemon, SpareLease
from .rows.downstream import Downstream
from .rows.error import ErrorGroup, Failure
from .rows.graph import Edge, Failing, Graph, Node, Undo
from .rows.instance import Instance
from .rows.log import LogRecord
from .rows.payload import Inputs, Response
from .rows.schedule import Schedule, Slot
from .rows.statistic import Statistic, Uncounted
from .rows.step import Step
from .rows.tailers.cursor import Cursor
from .rows.tailers.tailer import Tailer
from .rows.task import Task
from .rows.type import Type

__all__ = [
    "Cursor",
    "Daemon",
    "Downstream",
    "Edge",
    "ErrorGroup",
    "Failing",
    "Failure",
    "Gate",
    "Graph",
    "Inputs",
    "Instance",
    "Limit",
    "LogRecord",
    "Node",
    "Response",
    "Schedule",
    "Slot",
    "SpareLease",
    "Statistic",
    "Step",
    "Tailer",
    "Task",
    "Type",
    "Uncounted",
    "Undo",
]

"""The subcommands of ``manage.py atp``, a module for each noun."""

from .changing import Change
from .check import Check
from .commanding import Tell
from .controls import Gate, Limit
from .enqueueing import Enqueue
from .holding import Pause, Resume
from .listing import List
from .show import Show
from .status import Daemons, Status
from .steering import Cancel, Delete, Purge, Redrive, Release
from .types import Types

SUBCOMMANDS = (
    *(Status, Check, Types, List, Show, Enqueue),
    *(Change, Redrive, Release, Pause, Resume, Cancel, Purge, Delete, Gate, Limit, Daemons, Tell),
)

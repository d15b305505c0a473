"""The values that a process of a daemon inherits from its supervisor when it is forked."""

from typing import NamedTuple
from uuid import UUID

from ..options import Options
from ..system.folders import DaemonFolders
from .running_page import Page
from .stacks import StackFiles


class Inherited(NamedTuple):
    """Values that the supervisor makes before the first fork, and that all processes share."""

    page: Page
    options: Options
    folders: DaemonFolders
    stacks: StackFiles


class Predecessor(NamedTuple):
    """The state that a new dispatcher takes over from the dispatchers before it.

    Tasks may still be held under their ``identities``. ``request`` is the last request that
    they read in the daemon's row.
    """

    identities: tuple[UUID, ...] = ()
    request: str = ""

"""The values that a process of a daemon inherits from its supervisor when it is forked."""

from typing import NamedTuple
from uuid import UUID

from ..options import Options
from ..system.folders import DaemonFolders
from .running_page import Page


class Inherited(NamedTuple):
    """The supervisor makes these before the first fork, and all processes share them."""

    page: Page
    options: Options
    folders: DaemonFolders


class Predecessor(NamedTuple):
    """The state that the dispatchers before this one have left.

    Under their ``identities`` something may still be held; ``request`` is what the daemon's
    row asked for last.
    """

    identities: tuple[UUID, ...] = ()
    request: str = ""

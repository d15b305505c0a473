"""The nodes and edges of a graph as they are drawn."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from ..states import State

# The order of states in texts that count nodes by state.
ORDER = (
    *(State.FINISHED, State.FAILED, State.RUNNING, State.PAUSED),
    *(State.SCHEDULED, State.ACCEPTED),
)


class Vertex(NamedTuple):
    """A node: ``state`` and ``reason`` of its Instance; ``waits`` is how many edges it waits for.

    ``is_undo`` if it undoes another node.
    """

    key: int
    name: str
    type: str
    state: str
    reason: str = ""
    waits: int = 0
    uuid: UUID | None = None
    is_undo: bool = False


class Link(NamedTuple):
    """An edge, by the keys of its nodes. ``always`` if the second runs however the first ends.

    Without ``always`` the second node runs only if the first has FINISHED.
    """

    upstream: int
    downstream: int
    always: bool = False

"""A node of a graph and an edge, as they are drawn."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from ..states import State

# The states in the order in which a count of several is told.
ORDER = (
    *(State.FINISHED, State.FAILED, State.RUNNING, State.PAUSED),
    *(State.SCHEDULED, State.ACCEPTED),
)


class Vertex(NamedTuple):
    """A node: ``state`` and ``reason`` are its Instance's, ``waits`` how many edges hold it.

    ``is_undo`` if it undoes another.
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
    """An edge between the nodes of two keys. ``always`` if the second runs however the first ends.

    Most are not: their second node runs only if the first has FINISHED.
    """

    upstream: int
    downstream: int
    always: bool = False

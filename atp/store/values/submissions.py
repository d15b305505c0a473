"""A submission: the values of an Instance to be enqueued."""

import json
from datetime import datetime
from typing import NamedTuple

from ...options import HOOKS
from ...payload.codec import Payload


class Submission(NamedTuple):
    """One Instance to be enqueued, checked and serialized.

    ``due`` None means now. ``existing`` says what to do if the identifier is taken: "raise",
    "return" or "redrive"; or if the ``unique`` key is: "raise", "return", "replace" or
    "debounce". ``waits`` is the number of Edges that a node of a graph waits for; an Instance
    that is no node has -1 if it has hooks, else None. ``own`` are settings of this Instance
    alone, as :mod:`atp.options` writes them.
    """

    inputs: Payload
    identifier: str | None = None
    collection: str = ""
    priority: int = 0
    due: datetime | None = None
    start_before: datetime | None = None
    created_by: str = ""
    waits: int | None = None
    own: str | None = None
    unique: str | None = None
    existing: str = "raise"

    @property
    def has_hooks(self) -> bool:
        """Whether the Instance has hooks of its own."""
        return self.own is not None and HOOKS in json.loads(self.own)

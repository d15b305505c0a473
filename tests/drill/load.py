"""The normal load: a thread that enqueues some tasks each second."""

import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from atp import queue
from tests.chaos.background import Background

from .kinds import CATALOGUE, KINDS, Kind, draw_kind

PER_SECOND = 2


def enqueue(kind: Kind, collection: str = "", **inputs: Any) -> None:
    """Enqueue a task of a Kind for a tenant; both follow from chance as far as they are not given.

    The inputs are those of a normal day, together with ``inputs``.
    """
    source = random.Random()
    task_type = queue.declared(kind.type).using(
        collection=collection or source.choice(kind.collections), created_by="the shop"
    )
    task_type.enqueue(**{**kind.inputs(source, datetime.now(UTC)), **inputs})


class Load(Background):
    """Enqueues tasks of all Types but the scheduled one.

    An incident may set ``extra``, which is called each time that the load enqueues a task.
    """

    pause = 0.5 / PER_SECOND, 1.5 / PER_SECOND

    def __init__(self) -> None:
        super().__init__("load", "drill")
        self.extra: Callable[[], None] | None = None

    def _turn(self) -> None:
        extra = self.extra
        if extra is not None:
            extra()
        enqueue(draw_kind(self._random, tuple(kind for kind in KINDS if kind != CATALOGUE)))

"""Halting: how a context obeys those who pause an attempt."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class Halting(Protocol):
    """The pauses of an attempt: ``look()`` obeys an operator, ``own()`` is the handler's own."""

    def look(self) -> None: ...

    def own(self, message: str) -> AbstractContextManager[None]: ...

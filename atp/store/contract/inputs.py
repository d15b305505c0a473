"""Inputs of live Instances, examined without opening them. Nothing is written."""

from abc import ABC, abstractmethod

from ..values import Shape


class Inputs(ABC):
    @abstractmethod
    def shapes(self, after: int = 0, *, limit: int = 5_000) -> tuple[list[Shape], int | None]:
        """Return the shapes of the inputs of live Instances, and the last key looked at.

        There is one :class:`Shape` for each Type and shape. Up to ``limit`` Instances are examined,
        in key order, beginning above ``after``. The last key is None if there was none. Inputs that
        cannot be read have no names. No lock is waited for.
        """

"""Inputs of live Instances, looked at without being opened: nothing is written."""

from abc import ABC, abstractmethod

from ..values import Shape


class Inputs(ABC):
    @abstractmethod
    def shapes(self, after: int = 0, *, limit: int = 5_000) -> tuple[list[Shape], int | None]:
        """Return the shapes of the inputs of live Instances, by Type and shape.

        Up to ``limit`` Instances are looked at, in the order of their keys, from the first
        with a key above ``after`` on. Also returns the key of the last of them, None if there
        was none. Inputs that cannot be read have no names. It waits for no lock of others.
        """

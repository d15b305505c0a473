"""Carrier: it takes a value from the process that enqueues to the worker."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any


class Carrier:
    """Saves a value when an Instance is enqueued, and restores it around the handler.

    Each process makes one carrier, without arguments, of each class in ``ATP["CARRIERS"]``.
    ``name`` is the key under which the value is stored with the Instance.
    """

    name: str = ""

    def save(self) -> Any:
        """Return the value to carry, of a type that JSON has; None carries nothing.

        The enqueue raises any exception of this method.
        """
        raise NotImplementedError

    def restore(self, value: Any) -> AbstractContextManager[Any]:
        """Return a context manager in which the handler runs with this value.

        An exception here is an error of the attempt. The value is data from the database.
        """
        raise NotImplementedError

"""Carrier: what takes a value of the enqueuing process to the worker."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any


class Carrier:
    """Saves a value where an Instance is enqueued, and restores it around its handler.

    Each process makes one of each class that ``ATP["CARRIERS"]`` names, without arguments.
    ``name`` is the key under which the value is stored with the Instance.
    """

    name: str = ""

    def save(self) -> Any:
        """Return the value to carry, which JSON has a type for; None carries nothing.

        What it raises, the enqueue raises.
        """
        raise NotImplementedError

    def restore(self, value: Any) -> AbstractContextManager[Any]:
        """Return a context manager in which the handler runs with this value.

        What it raises is an error of the attempt. The value is data from the database.
        """
        raise NotImplementedError

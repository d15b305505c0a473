"""Middleware around attempts, and carriers: values that go from an enqueue to its handler."""

from .builtin import Language, TimeZone
from .carrier import Carrier

__all__ = ["Carrier", "Language", "TimeZone"]

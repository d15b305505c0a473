"""What goes around each attempt, and what an Instance carries from its enqueue to its handler."""

from .builtin import Language, TimeZone
from .carrier import Carrier

__all__ = ["Carrier", "Language", "TimeZone"]

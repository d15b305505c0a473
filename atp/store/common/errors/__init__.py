"""Error groups in the portable store: their counts are added up apart from the ends."""

from .counting import Errors

__all__ = ["Errors"]

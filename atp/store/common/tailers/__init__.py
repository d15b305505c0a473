"""Tailers in the portable store: how far each source has been read."""

from .positions import Tailers as Tailers

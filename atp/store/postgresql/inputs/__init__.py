"""Inputs in PostgreSQL: the server reads them, and sends the names of their arguments alone."""

from .shapes import Inputs

__all__ = ["Inputs"]

"""Exceptions of handlers, whatever these do when they are looked at."""

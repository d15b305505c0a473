"""Noticing that somebody else has written to the database file."""

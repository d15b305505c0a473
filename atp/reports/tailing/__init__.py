"""Tailers as documents: what came out of their sources, and their cursors."""

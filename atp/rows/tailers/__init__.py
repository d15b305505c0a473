"""Tailers and their cursors: how far the sources outside of the queue have been read."""

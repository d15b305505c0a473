"""Cursors of the driver, and whose turn it is to write."""

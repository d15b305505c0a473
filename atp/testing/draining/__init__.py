"""Draining: what is due runs in the process of a test, as a daemon would run it."""

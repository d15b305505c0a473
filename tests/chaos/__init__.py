"""Chaos: daemons, their processes and their database are hit while tasks run.

Afterwards every promise is checked from the handlers' own record against the
database. ``python -m tests.chaos --help`` says how to run it.
"""

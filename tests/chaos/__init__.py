"""Chaos: daemons, their processes and their database are hit while tasks run, and judged then."""

"""Measurements; ``python -m benchmarks``."""

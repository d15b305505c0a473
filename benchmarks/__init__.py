"""Measurements, by ``python -m benchmarks [NAME …]``; no tests.

A benchmark is a module here with a docstring that says what it measures,
``add_arguments(add)`` and ``run(options, report)``; :mod:`benchmarks.core` has
what they share. A module is imported before Django is set up, since its options
are, so what needs Django is imported by ``run()``.
"""

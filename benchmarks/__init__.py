"""Measurements, by ``python -m benchmarks [NAME …]``; no tests.

A benchmark is a module here with a docstring that says what it measures,
``add_arguments(add)`` and ``run(options, report)``; :mod:`benchmarks.core` has
what they share. A module is imported before Django is set up, since its options
are, so what needs Django is imported by ``run()``.

To daemons this is an app, with Types in :mod:`.tasks`. What is used of ATP is what
stays: the verbs, the options of ``atpd`` and the tables, so that ``--against`` can
run an earlier commit.
"""

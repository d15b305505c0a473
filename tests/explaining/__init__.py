"""Tests of :mod:`atp.reports.explaining`."""

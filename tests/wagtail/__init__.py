"""Tests a Wagtail site whose tasks a real atpd runs: ``python -m tests.wagtail``."""

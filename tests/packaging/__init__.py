"""Tests of the package as a user gets it from a clone."""

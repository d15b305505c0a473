"""Tests of what other packages get from ATP."""

"""Tests of the integrations with other packages."""

"""Tests of OGC API – Processes."""

"""Feature: what has failed, grouped by cause, and repaired."""

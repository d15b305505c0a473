"""Feature: reading an outside source, and enqueueing its records."""

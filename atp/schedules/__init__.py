"""Feature: Types enqueued at certain times."""

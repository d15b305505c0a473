"""Schedules: daemons enqueue Instances of Types at certain times."""

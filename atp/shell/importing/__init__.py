"""Importing schedules from the tables of other schedulers."""

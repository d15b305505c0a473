"""Graphs as plain values: plans, pictures and lists of their nodes. No database, no clock."""

"""Graphs: Instances that wait for other Instances."""

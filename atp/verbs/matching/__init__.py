"""Verbs on all Instances that match a selection: planned first, then carried out at a rate."""

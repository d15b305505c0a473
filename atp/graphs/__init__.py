"""Feature: Instances that wait for others (workflows)."""

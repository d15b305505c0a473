"""The chaos suite: faults hit daemons and database while tasks run, then a judge checks."""

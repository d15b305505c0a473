"""Executors: attempts that an engine runs on other hosts."""

"""The daemon: real processes, real signals, a real database."""

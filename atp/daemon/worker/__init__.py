"""The worker: a process that runs handlers."""

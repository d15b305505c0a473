"""The operating system as a daemon uses it."""

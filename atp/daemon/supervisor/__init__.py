"""The supervisor: the parent of all processes of a daemon."""

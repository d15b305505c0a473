"""The dispatcher: the one process of a daemon that talks to the queue."""

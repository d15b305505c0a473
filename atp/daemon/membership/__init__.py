"""The membership of a daemon in the queue: its identity, its lease and the orders to it."""

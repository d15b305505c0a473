"""A look at the queue: the entries of indexes that a claim reads first."""

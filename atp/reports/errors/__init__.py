"""Dead letters by their causes: the error groups, and what is known of each."""

"""Taking over what other schedulers have in their tables."""

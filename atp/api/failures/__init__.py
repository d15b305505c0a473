"""Dead letters in the API: the error groups, and verbs on all that matches."""

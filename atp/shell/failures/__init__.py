"""Dead letters in the shell: the error groups, and verbs on all that matches."""

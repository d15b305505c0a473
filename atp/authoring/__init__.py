"""Everything that the author of a handler uses."""

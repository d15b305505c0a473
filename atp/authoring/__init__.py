"""What the author of a handler uses."""

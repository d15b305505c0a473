"""For other packages, each an extra."""

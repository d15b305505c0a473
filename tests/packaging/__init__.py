"""The package as somebody gets it who has nothing but the clone."""

"""The type check: a typed project that uses ATP, and the settings for the check."""

"""The type check: a typed project that uses ATP, and the settings under which it is checked."""

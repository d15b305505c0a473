"""Running Tasks: supervisor, dispatcher and workers."""

"""Running Tasks: supervisor, dispatcher and workers (house plan, "Life of a daemon")."""

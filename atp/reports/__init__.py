"""Reports about the queue. This package reads the database and never writes to it."""

"""Reading the exceptions of handlers, whose own code may raise when they are read."""

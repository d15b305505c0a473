"""The log handlers of the project, called in a thread or process that may wait for them."""

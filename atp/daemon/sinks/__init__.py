"""The log handlers of the project, which are called where nobody waits for them."""

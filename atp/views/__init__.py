"""The pages: what operators see of the queue in a browser, and do with it."""

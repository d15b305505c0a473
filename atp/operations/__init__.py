"""The operations on the queue that shell, API, pages and Python code share."""

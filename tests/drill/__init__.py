"""The incident drill: ``python -m tests.drill`` breaks a queue in twelve ways, one after another.

An operator looks at the pages and finds out what is wrong, since when, and whom it affects.
"""

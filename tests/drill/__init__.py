"""The incident drill: ``python -m tests.drill`` breaks a queue in twelve ways, one after another.

An operator looks at the pages and finds out what is wrong, since when, and whom it affects.
"""

# The release of the project, and the next one, which has one Type less.
RELEASE, NEXT_RELEASE = "2026.11.1", "2026.11.2"

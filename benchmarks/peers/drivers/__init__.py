"""How each peer is driven: a module for each, that runs in the peer's own virtual environment.

Nothing here may import from elsewhere in the project but :mod:`benchmarks.core.told`,
which needs nothing, and :mod:`benchmarks.models`, which needs Django and is imported
by the handlers that save rows: what else is imported counts in the peer's memory.
"""

"""The messages about nodes of graphs, and about attempts that add nodes to their graph."""


def freed() -> str:
    return "all that it waited for has ended"


def upstream_failed(name: str, reason: str) -> str:
    return f"{name} failed ({reason})"


def recounted(was: int, count: int) -> str:
    return f"it waited for {was} nodes of its graph, and should for {count}: set right"


def left_to_fail() -> str:
    return "a node that it waits for has failed: it will be failed too"


def addition_refused() -> str:
    return "what it adds to its graph was refused: its Task was taken away"


def addition_waits(why: str = "") -> str:
    """``why`` is what the database says; without it the graph, a node or a Task is locked."""
    why = why or "somebody else has locked what it is to be added to"
    return f"what it adds to its graph cannot be written as yet: {why}"

"""The log messages about nodes of graphs, and about attempts that add nodes to their graph."""


def freed() -> str:
    return "all Instances that it waited for have ended"


def upstream_failed(name: str, reason: str) -> str:
    return f"{name} failed ({reason})"


def recounted(was: int, count: int) -> str:
    return f"the number of nodes that it waits for was {was}, and is corrected to {count}"


def left_to_fail() -> str:
    return "a node that it waits for has failed: it will fail too"


def addition_refused() -> str:
    return "the nodes that this attempt wanted to add were refused: its Task was taken away"


def addition_waits(why: str = "") -> str:
    """``why`` is the error of the database; without it, another session has locked a needed row."""
    why = why or "another session has locked the graph, a node or a Task"
    return f"the nodes that this attempt wants to add cannot be written yet: {why}"

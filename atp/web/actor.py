"""The actor of a request, as the log names it: the user and the channel."""

from ..words.options import MAX_IDENTIFIER

PAGE, API, ADMIN = "page", "API", "admin"


def actor(request, channel):
    """Return ``user NAME via CHANNEL``, as one printable line that fits its column."""
    name = "".join(c for c in str(request.user.get_username()) if c.isprintable())
    via = f" via {channel}"
    return f"user {name}"[: MAX_IDENTIFIER - len(via)] + via

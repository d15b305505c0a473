"""The actor of a request, as the log names it: the user and the channel."""

from ..words.options import MAX_IDENTIFIER

PAGE, API, ADMIN, SHELL = "page", "API", "admin", "shell"


def actor(request, channel):
    """Return the user of a request as an actor; see :func:`actor_of`."""
    return actor_of(request.user, channel)


def actor_of(user, channel):
    """Return ``user NAME via CHANNEL``, as one printable line that fits its column."""
    name = "".join(c for c in str(user.get_username()) if c.isprintable())
    via = f" via {channel}"
    return f"user {name}"[: MAX_IDENTIFIER - len(via)] + via

"""What operators tell: a running attempt (cancel, pause, resume, release), a daemon (quiet,
resume, stop); the modes of a daemon.
"""

from dataclasses import dataclass

from django.db.models import TextChoices

# Asks: requests of operators to the holder of a claimed Task.

# Requests on a claimed Task. A cancel stays, whatever is asked afterwards.
RELEASE = "release"
CANCEL = "cancel"
# Each of these holds until the other one is asked.
PAUSE, RESUME = "pause", "resume"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """A request on a claimed Task, which its holder has to carry out.

    Only a cancel has ``who`` asked for it, and ``age``: how many seconds ago.
    """

    instance: int
    attempt: int
    request: str
    who: str = ""
    age: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Cancelled:
    """The outcome of a cancel, as keys of Instances.

    ``failed``: they waited, and are FAILED now. ``asked``: their holders are asked now.
    ``before``: their holders had been asked before. All other keys are not live.
    """

    failed: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()
    before: tuple[int, ...] = ()


# The modes of a daemon, and the orders that change them.


class Mode(TextChoices):
    """The mode of a daemon, which the daemon itself writes on its row."""

    RUNNING = "running", "claims what it serves"
    QUIET = "quiet", "claims nothing more, and goes on with what it runs"
    STOPPING = "stopping", "claims nothing more, and ends"


class Order(TextChoices):
    """An order to a daemon, given by an operator."""

    QUIET = "quiet", "go quiet"
    RESUME = "resume", "resume"
    STOP = "stop", "stop"


EXPLANATIONS = {
    Order.QUIET: "Stop claiming. Hand back Tasks that have not started; go on with those that run.",
    Order.RESUME: "Start claiming again.",
    Order.STOP: "Stop as after SIGTERM: running attempts get the daemon's grace to end.",
}


# The request that each order leaves on the daemon's row. It stays there while the daemon
# obeys it, so the daemon's next identity obeys it too.
REQUESTS = {Order.QUIET: "quiet", Order.RESUME: "", Order.STOP: "stop"}

# The modes in which each order makes a difference, and the mode that it leads to.
ORDERS = {
    Order.QUIET: ({Mode.RUNNING}, Mode.QUIET),
    Order.RESUME: ({Mode.QUIET}, Mode.RUNNING),
    Order.STOP: ({Mode.RUNNING, Mode.QUIET}, Mode.STOPPING),
}


def aim(mode: str, request: str) -> Mode:
    """Return the mode to which the request on its row brings a daemon; no order ends STOPPING."""
    if Mode.STOPPING in (mode, wanted(request)):
        return Mode.STOPPING
    return wanted(request)


def wanted(request: str) -> Mode:
    """Return the mode that the request on a daemon's row asks for."""
    order = next((order for order, left in REQUESTS.items() if left == request), Order.RESUME)
    return ORDERS[order][1]


def allowed(aim: Mode) -> list[Order]:
    """Return the orders that would change the mode of a daemon with this aim."""
    return [order for order, (sources, _) in ORDERS.items() if aim in sources]

"""How a daemon works, and what it can be told: the modes, and the one table of orders."""

from django.db.models import TextChoices


class Mode(TextChoices):
    """What a daemon does. It writes this on its row itself."""

    RUNNING = "running", "claims what it serves"
    QUIET = "quiet", "claims nothing more, and goes on with what it runs"
    STOPPING = "stopping", "claims nothing more, and ends"


class Order(TextChoices):
    """What a daemon can be told to do."""

    QUIET = "quiet", "go quiet"
    RESUME = "resume", "resume"
    STOP = "stop", "stop"


EXPLANATIONS = {
    Order.QUIET: "Claim nothing more, hand back what has not started, go on with what runs.",
    Order.RESUME: "Claim again.",
    Order.STOP: "Stop as after SIGTERM: what runs gets the daemon's grace.",
}


# The request that each order leaves on the daemon's row. It stays there as long as the
# daemon does what it says, so that the daemon's next identity does it too.
REQUESTS = {Order.QUIET: "quiet", Order.RESUME: "", Order.STOP: "stop"}

# From which modes each order leads where.
ORDERS = {
    Order.QUIET: ({Mode.RUNNING}, Mode.QUIET),
    Order.RESUME: ({Mode.QUIET}, Mode.RUNNING),
    Order.STOP: ({Mode.RUNNING, Mode.QUIET}, Mode.STOPPING),
}


def aim(mode, request):
    """Return the mode that a daemon is in, or that its request will bring it to soon.

    Nothing leads out of stopping.
    """
    if Mode.STOPPING in (mode, wanted(request)):
        return Mode.STOPPING
    return wanted(request)


def wanted(request):
    """Return the mode that the request on a daemon's row asks for."""
    order = next((order for order, left in REQUESTS.items() if left == request), Order.RESUME)
    return ORDERS[order][1]


def allowed(aim):
    """Return the orders that make a difference to a daemon with this aim."""
    return [order for order, (sources, _) in ORDERS.items() if aim in sources]

"""The verbs on daemons: an entry for each order."""

from dataclasses import dataclass

from ...models import Daemon
from ...words import orders
from ...words.orders import EXPLANATIONS, Order
from ..daemons import command
from .verb import CONTROL, Verb


@dataclass(frozen=True, kw_only=True)
class DaemonVerb(Verb):
    """A verb that sends an order to a daemon, which carries it out within a second or two."""

    order: Order
    permission: str = CONTROL

    def is_allowed(self, daemon: Daemon) -> bool:
        """Whether the order would change the mode of the daemon."""
        return self.order in orders.allowed(daemon.aim)


def _verb(order: Order) -> DaemonVerb:
    return DaemonVerb(
        name=order.value,
        label=order.label.capitalize(),
        explanation=EXPLANATIONS[order],
        order=order,
        call=lambda daemon, by: command(daemon, order, by=by),
        told=lambda *_: f"It has been told to {order.label}.",
        asks_first=lambda _: order is Order.STOP,
    )


VERBS = tuple(map(_verb, Order))

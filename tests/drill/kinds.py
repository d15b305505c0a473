"""The twelve Types of the drill on a normal day: their load, durations, tenants and errors.

The handlers, the history and the load all follow this table, so that the history fits to what the
daemons do now.
"""

import math
import random
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

SHOPS = ("acme", "borealis", "corvus", "delta")
MISSIONS = ("sentinel-1", "sentinel-2", "landsat-9")
# The standard deviation of the logarithm of a duration.
SPREAD = 0.4
# The fraction of attempts that fail on a normal day.
FAILING = 0.005


@dataclass(frozen=True)
class Kind:
    """A Type on a normal day.

    ``share`` is its part of all tasks, in percent. ``seconds`` is the median of its durations.
    ``errors`` are the messages of its usual failures.
    """

    type: str
    share: int
    seconds: float
    errors: tuple[str, ...]

    @property
    def collections(self) -> tuple[str, ...]:
        """Its tenants."""
        return SHOPS if self.type.startswith("shop.") else MISSIONS

    def duration(self, source: random.Random) -> float:
        """Return the duration of an attempt in seconds."""
        return source.lognormvariate(math.log(self.seconds), SPREAD)

    def error(self, source: random.Random) -> str:
        """Return the message with which an attempt fails, or "" for most attempts."""
        return source.choice(self.errors) if source.random() < FAILING else ""

    def inputs(self, source: random.Random, time: datetime) -> dict[str, Any]:
        """Return the arguments of a task that is enqueued at a time."""
        number = source.randrange(10_000, 100_000)
        if self.collections == SHOPS:
            return {"order": number}
        return {"scene": f"{time.astimezone(UTC):%Y%m%dT%H%M%S}_T{number}"}


ORDER = Kind("shop.order", 14, 0.05, ("article is sold out",))
PAY = Kind("shop.pay", 12, 0.1, ("card has expired", "card was declined"))
SHIP = Kind("shop.ship", 10, 0.1, ("address is unknown",))
MAIL = Kind("shop.mail", 12, 0.05, ("mailbox is full",))
INVOICE = Kind("shop.invoice", 8, 0.15, ("order has no address",))
NEWSLETTER = Kind("shop.newsletter", 6, 0.1, ("mailbox is full",))
THUMBNAIL = Kind("shop.thumbnail", 8, 0.2, ("image has an unknown format",))
INGEST = Kind("eo.ingest", 12, 0.2, ("checksum differs",))
DECODE = Kind("eo.decode", 6, 0.3, ("band B09 is missing",))
WARP = Kind("eo.warp", 5, 0.4, ("scene is outside of the grid",))
MOSAIC = Kind("eo.mosaic", 4, 0.8, ("too many clouds",))
# Only a schedule enqueues it.
CATALOGUE = Kind("eo.catalogue", 3, 0.2, ("catalogue is being rebuilt",))

KINDS = (
    *(ORDER, PAY, SHIP, MAIL, INVOICE, NEWSLETTER, THUMBNAIL),
    *(INGEST, DECODE, WARP, MOSAIC, CATALOGUE),
)


def draw_kind(source: random.Random, kinds: tuple[Kind, ...] = KINDS) -> Kind:
    """Return a random Kind by its share."""
    return source.choices(kinds, [kind.share for kind in kinds])[0]

"""The handlers of the drill. On a normal day they only take time; incidents break some of them.

A fault is a file in the drill's folder. While the file exists, a handler that looks for it fails.
"""

import os
import random
import resource
import signal
import time
from pathlib import Path
from typing import Any

from atp import task_type

from . import NEXT_RELEASE, kinds

# The names of faults.
TAX, PAYMENTS = "tax", "payments"
# The tenant whose tax rate is broken.
UNTAXED = "borealis"
# Seconds for which the shop waits for the payment service.
PATIENCE = 1.0
# The scenes that crash the decoder, and the pixels of a scene that needs too much memory.
CORRUPT = ("20261127T101229_T33UWP", "20261127T101231_T33UXP", "20261127T101233_T33UXQ")
HUGE = 400_000_000
MOST_MEMORY = "200MiB"


class ShopError(Exception):
    """An order cannot be handled."""


class SceneError(Exception):
    """A scene cannot be processed."""


def fault(name: str) -> Path:
    """Return the file that exists while a service or a setting is broken."""
    return Path(os.environ["DEMO_DIR"]) / f"fault-{name}"


def work(kind: kinds.Kind) -> None:
    """Take as long as usual, or fail in a usual way."""
    source = random.Random()
    time.sleep(kind.duration(source))
    if message := kind.error(source):
        raise (ShopError if kind.collections == kinds.SHOPS else SceneError)(message)


@task_type(kinds.ORDER.type, owner="shop")
def take_order(context: Any, *, order: int) -> None:
    """Take an order."""
    work(kinds.ORDER)


@task_type(kinds.PAY.type, owner="shop", downstream="payments", downstream_errors=TimeoutError)
def pay(context: Any, *, order: int) -> None:
    """Charge a card by the payment service."""
    if fault(PAYMENTS).exists():
        time.sleep(PATIENCE)
        raise TimeoutError(f"payments.example.org did not answer within {PATIENCE:g} s")
    work(kinds.PAY)


@task_type(kinds.SHIP.type, owner="shop")
def ship(context: Any, *, order: int) -> None:
    """Send a parcel."""
    work(kinds.SHIP)


@task_type(kinds.MAIL.type, owner="shop")
def mail(context: Any, *, order: int) -> None:
    """Tell the customer."""
    work(kinds.MAIL)


@task_type(kinds.INVOICE.type, owner="billing")
def invoice(context: Any, *, order: int) -> None:
    """Write an invoice with the tax of the tenant."""
    if context.collection == UNTAXED and fault(TAX).exists():
        raise ShopError(f"order {order}: {UNTAXED} has no tax rate")
    work(kinds.INVOICE)


@task_type(kinds.THUMBNAIL.type, owner="shop")
def thumbnail(context: Any, *, order: int) -> None:
    """Draw a small picture."""
    work(kinds.THUMBNAIL)


@task_type(kinds.INGEST.type, owner="earth observation")
def ingest(context: Any, *, scene: str) -> None:
    """Fetch a scene."""
    work(kinds.INGEST)


@task_type(kinds.DECODE.type, owner="earth observation", max_restarts=1000)
def decode(context: Any, *, scene: str) -> None:
    """Decode a scene by a library in C, which some scenes crash."""
    if scene in CORRUPT:
        time.sleep(PATIENCE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), signal.SIGSEGV)
    work(kinds.DECODE)


@task_type(kinds.WARP.type, owner="earth observation", max_memory=MOST_MEMORY, max_restarts=1)
def warp(context: Any, *, scene: str, pixels: int = 1_000_000) -> None:
    """Project a scene, with one byte of memory for each pixel."""
    taken = [bytearray(b"x") * 10_000_000 for _ in range(pixels // 10_000_000)]
    time.sleep(PATIENCE if taken else 0)
    work(kinds.WARP)


@task_type(kinds.MOSAIC.type, owner="earth observation")
def mosaic(context: Any, *, scene: str, tiles: int = 1) -> None:
    """Join tiles."""
    for _ in range(tiles - 1):
        time.sleep(kinds.MOSAIC.seconds)
    work(kinds.MOSAIC)


@task_type(kinds.CATALOGUE.type, owner="earth observation")
def refresh_catalogue(context: Any, *, scene: str = "") -> None:
    """List the newest scenes."""
    work(kinds.CATALOGUE)


if os.environ["DRILL_RELEASE"] != NEXT_RELEASE:

    @task_type(kinds.NEWSLETTER.type, owner="marketing")
    def newsletter(context: Any, *, order: int) -> None:
        """Send the newsletter, which the next release does not have."""
        work(kinds.NEWSLETTER)

"""Collector: the metrics of a queue, read from its database when they are collected."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import Error, OperationalError, connections, transaction
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector as Base

from ...conf import settings
from . import counters, gauges, work
from .scrape import Scrape

logger = logging.getLogger("atp.metrics")

# Each reads metrics that belong together. One that fails leaves only its own out.
PARTS: tuple[Callable[[Scrape], Iterable[Metric]], ...] = (
    counters.run_times,
    work.tasks,
    work.dead_letters,
    gauges.controls,
    gauges.daemons,
    gauges.schedules,
    gauges.tailers,
    gauges.database,
    gauges.problems,
    counters.counted,
)
# The longest time for one statement, which only PostgreSQL keeps; and the time after which no
# other statement begins. Both in seconds: a scraper gives up after ten.
LONGEST, ALL = 2.0, 5.0


class Collector(Base):
    """Yields all metrics of the queue, as a collector of ``prometheus_client``.

    To add them to metrics of your own, register one: ``REGISTRY.register(Collector())``. What the
    database does not answer in time is left out; ``atp_scrape_complete`` is 0 then.
    """

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: else registering it would read the database."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        began, complete, scrape = time.perf_counter(), 1.0, Scrape()
        for part in PARTS:
            try:
                with _bounded(began + ALL):
                    found = list(part(scrape))
            except Error as error:
                logger.warning("%s was not collected: %s", part.__name__, str(error).strip())
                complete = 0.0
            else:
                yield from found
        yield GaugeMetricFamily(
            "atp_scrape_complete", "Whether all metrics of ATP could be read.", complete
        )
        yield GaugeMetricFamily(
            "atp_scrape_duration_seconds",
            "The time that reading them took.",
            time.perf_counter() - began,
        )


@contextmanager
def _bounded(until: float) -> Iterator[None]:
    """Give each statement of the block a limited time, and begin none after ``until``."""
    connection = connections[settings.DATABASE]

    def in_time(execute: Callable[..., Any], *given: Any) -> Any:
        if time.perf_counter() > until:
            raise OperationalError("there is no time left")
        return execute(*given)

    if connection.vendor != "postgresql":
        with connection.execute_wrapper(in_time):
            yield
        return
    with transaction.atomic(using=settings.DATABASE), connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting(%s), set_config(%s, %s, true)",
            ["statement_timeout", "statement_timeout", str(int(LONGEST * 1000))],
        )
        before, _ = cursor.fetchone()
        with connection.execute_wrapper(in_time):
            yield
        # The transaction may be the caller's, and go on.
        cursor.execute("SELECT set_config(%s, %s, true)", ["statement_timeout", before])

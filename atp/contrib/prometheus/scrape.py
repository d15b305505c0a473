"""What the parts of one scrape share: what they hand on to each other, Types, and gauges."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily

from ...conf import settings
from ...models import Type


@dataclass
class Scrape:
    """The mean run times of Types in seconds, by identifier; None if they could not be read."""

    runs: dict[str, float] | None = None


def types() -> dict[int, Type]:
    """Return the registered Types by key, in the order of their identifiers."""
    return {row.pk: row for row in Type.objects.using(settings.DATABASE).order_by("identifier")}


def gauge(name: str, told: str, *labels: str) -> GaugeMetricFamily:
    """Return an empty metric of this name without its prefix, with these labels."""
    return GaugeMetricFamily(f"atp_{name}", told, labels=labels)

"""The text that Prometheus scrapes."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from .collector import Collector

CONTENT_TYPE: str = CONTENT_TYPE_LATEST


def exposition() -> bytes:
    """Return all metrics of the queue, in UTF-8, in Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    text: bytes = generate_latest(registry)
    return text

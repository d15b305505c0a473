"""Metrics for Prometheus: ``path("metrics", atp.contrib.prometheus.metrics)``.

They are read from the queue's database at each scrape, so any process may answer it.
"""

from .collector import Collector
from .exposition import CONTENT_TYPE, exposition
from .view import metrics

__all__ = ["CONTENT_TYPE", "Collector", "exposition", "metrics"]

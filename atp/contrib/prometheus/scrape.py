"""Scrape: what the parts of one scrape hand on to each other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Scrape:
    """The mean run times of Types in seconds, by identifier; None if they could not be read."""

    runs: dict[str, float] | None = None

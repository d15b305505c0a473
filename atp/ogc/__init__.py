"""OGC API – Processes: Types that are public, offered to the clients of that standard.

A project includes it with ``path("ogc/", include("atp.ogc.urls"))``.
"""

from .processes import File, process

__all__ = ["File", "process"]

"""A manager of pygeoapi: the jobs of its processes are Instances.

The configuration of pygeoapi names ``atp.contrib.pygeoapi.Manager``. The daemons have
``atp.contrib.pygeoapi`` in INSTALLED_APPS, and the variable PYGEOAPI_CONFIG.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """Import the manager when pygeoapi asks for it: a daemon needs little of pygeoapi."""
    if name != "Manager":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .manager import Manager

    return Manager

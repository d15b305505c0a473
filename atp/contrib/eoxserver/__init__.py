"""An asynchronous backend of EOxServer: the jobs of its WPS processes are Instances.

The setting EOXS_ASYNC_BACKENDS names ``atp.contrib.eoxserver.Backend``. INSTALLED_APPS has
``atp.contrib.eoxserver``, and the URLs include ``atp.contrib.eoxserver.urls``.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """Import the backend when EOxServer asks for it, after Django has loaded the apps."""
    if name != "Backend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .backend import Backend

    return Backend

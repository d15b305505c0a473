"""The portable store: Django's ORM, on any database that Django supports.

One mixin a noun; what they share is in :mod:`.base`, and the one place that
applies the transition table in :mod:`.moves`.
"""

from .claims import Claims
from .controls import Controls
from .daemons import Daemons
from .enqueueing import Enqueueing
from .records import Records
from .removal import Removal
from .requests import Requests
from .scan import Scanning
from .steering import Steering
from .types import Types


class ORMStore(
    *(Types, Enqueueing, Daemons, Claims, Controls),
    *(Records, Requests, Removal, Scanning, Steering),
):
    """The store contract in portable Django ORM."""

"""Daemons in the portable store: identity, lease, outlook."""

from .identity import Identity
from .leases import Leases
from .outlook import Outlooks


class Daemons(Identity, Leases, Outlooks):
    """The verbs of daemons."""

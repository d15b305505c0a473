"""The store for SQLite: what is done most, in statements that take many rows each.

What is done seldom is the portable store's.
"""

from ..orm import ORMStore
from .claims import Claims
from .daemons import Daemons
from .enqueueing import Enqueueing
from .listener import Listening
from .records import Records


class SQLiteStore(Enqueueing, Claims, Records, Daemons, Listening, ORMStore):
    """The store contract, with statements of SQLite's own."""

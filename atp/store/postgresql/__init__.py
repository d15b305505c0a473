"""The store for PostgreSQL: what is done most, in one statement each.

What is done seldom is the portable store's. It is not chosen by itself yet:
``ATP["STORE"] = "atp.store.postgresql.PostgreSQLStore"`` does.
"""

from ..orm import ORMStore
from .claims import Claims
from .enqueueing import Enqueueing
from .records import Records


class PostgreSQLStore(Enqueueing, Claims, Records, ORMStore):
    """The store contract, with statements of PostgreSQL's own."""

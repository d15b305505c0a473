"""The store for PostgreSQL: what is done most, in one statement each.

What is done seldom is the portable store's.
"""

from ..orm import ORMStore
from .claims import Claims
from .daemons import Daemons
from .enqueueing import Enqueueing
from .limited import Limited
from .records import Records
from .telling import Telling


class PostgreSQLStore(Enqueueing, Limited, Claims, Records, Daemons, Telling, ORMStore):
    """The store contract, with statements of PostgreSQL's own."""

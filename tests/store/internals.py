"""What the tests of the store look at below its protocol: no other module imports it."""
# ruff: noqa: F401

from django.db import connection

from atp import folders as filelock
from atp.daemon.dispatcher.reader import Statistics
from atp.store.common import enqueueing, graph_ends
from atp.store.common import scan as scanning
from atp.store.common.limits import Bucket
from atp.store.common.store import ORMStore
from atp.store.common.transitions import Mover
from atp.store.common.turns import ClaimMemory
from atp.store.facts import NOWHERE, Cursor, Marks, Trouble
from atp.store.postgresql import PostgreSQLStore, sessions, statements
from atp.store.postgresql import daemons as postgresql_listener
from atp.store.postgresql import records as postgresql_records
from atp.store.postgresql import removal as postgresql_removal
from atp.store.postgresql.claims import PART, Ends, KnownTypes
from atp.store.postgresql.sessions import literal
from atp.store.postgresql.statements import PLANNING, THRESHOLD, array, texts
from atp.store.sqlite import claims as known
from atp.store.sqlite import listener as sqlite_listener
from atp.store.sqlite import sessions as turns
from atp.store.sqlite import vendor as sqlite_vendor
from atp.store.sqlite.claims import Known
from atp.store.sqlite.listener import HANDED, TAKERS, Watch
from atp.store.sqlite.sessions import as_text

if connection.vendor == "postgresql":
    from atp.store.postgresql.statements import cursor_of
else:
    from atp.store.sqlite.sessions import cursor_of

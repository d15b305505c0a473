"""What the tests of the store look at below its protocol: no other module imports it."""
# ruff: noqa: F401

from django.db import connection

from atp import folders as filelock
from atp.daemon.pool.statistics import Statistics
from atp.store import handover
from atp.store.buckets import Bucket
from atp.store.common import ORMStore
from atp.store.common import scan as scanning
from atp.store.common.graphs import failing, removing, undoing
from atp.store.common.mover import Mover
from atp.store.facts import NOWHERE, Cursor, Marks, Trouble
from atp.store.memory import ClaimMemory
from atp.store.postgresql import PostgreSQLStore
from atp.store.postgresql import listener as postgresql_listener
from atp.store.postgresql.driver import sessions
from atp.store.postgresql.driver.arrays import array, texts
from atp.store.postgresql.driver.literals import literal
from atp.store.postgresql.driver.statements import PLANNING, THRESHOLD
from atp.store.postgresql.shortcuts import PART, Ends, Part
from atp.store.sqlite import vendor as sqlite_vendor
from atp.store.sqlite.base import as_text
from atp.store.sqlite.driver import turns
from atp.store.sqlite.look import known
from atp.store.sqlite.look.known import Known
from atp.store.sqlite.wakeups import listener as sqlite_listener
from atp.store.sqlite.wakeups.handover import HANDED, TAKERS
from atp.store.sqlite.wakeups.inotify import Watch

if connection.vendor == "postgresql":
    from atp.store.postgresql.driver.cursors import cursor_of
else:
    from atp.store.sqlite.driver.cursors import cursor_of

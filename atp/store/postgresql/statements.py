"""The statements of this store: one a file, in the folder ``sql``.

To plan one of them takes the server longer than to execute it for one Task.
What a connection executes again and again for few is prepared there, and its
plan kept for a while. For many it is planned each time, for as many as they are.
"""

import re
import time
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from weakref import WeakKeyDictionary
from zlib import crc32

# So often a statement is executed on a connection before it is prepared: a
# connection of a web request may not live longer.
THRESHOLD = 3
# For so many rows at most, the plan for any number of rows does.
FEW = 16
# A kept plan is thrown away after this, in seconds: the tables may have grown.
KEEP = 5.0

# Left to itself, the server plans these each time: it expects more of it than it gains.
# They come from daemons only, so that no application's session is touched.
_OF_DAEMONS = frozenset({"claim", "finish", "record", "renew", "outlook"})
_KEPT = "SET plan_cache_mode = force_generic_plan; "

_PARAMETER = re.compile(r"%\((\w+)\)s")


@dataclass(frozen=True)
class Statement:
    """A statement as it stands in its file, without comments; and in the words of PREPARE."""

    text: str
    name: str
    names: tuple[str, ...]
    setting: str = ""

    @property
    def prepare(self):
        numbered = _PARAMETER.sub(lambda found: f"${self.names.index(found[1]) + 1}", self.text)
        return f"{self.setting}PREPARE {self.name} AS {numbered}"

    @property
    def execute(self):
        places = ", ".join(f"%({name})s" for name in self.names)
        return f"EXECUTE {self.name} ({places})" if places else f"EXECUTE {self.name}"


@cache
def statement(name):
    """Return the :class:`Statement` of this name."""
    text = files(__package__).joinpath("sql", f"{name}.sql").read_text()
    lines = (line.partition("--")[0].rstrip() for line in text.splitlines())
    text = "\n".join(line for line in lines if line)
    names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    # Of another version of this text another name: connections may outlive an upgrade.
    setting = _KEPT if name in _OF_DAEMONS else ""
    return Statement(text, f"atp_{name}_{crc32(text.encode()):08x}", names, setting)


class _Session:
    """What is known of one connection to the server."""

    def __init__(self):
        self.uses = {}
        self.keeps = None
        self.planned = time.monotonic()

    def is_stale(self):
        """Whether the plans are to be made anew; from now on they are new."""
        now = time.monotonic()
        if now - self.planned < KEEP:
            return False
        self.planned = now
        return True


# By the driver's connection, which goes with the session.
_SESSIONS = WeakKeyDictionary()


def execute(cursor, name, parameters, *, prepared=True):
    """Execute a statement with Django's cursor; ``prepared`` if it is for few rows."""
    wanted = statement(name)
    if prepared and _is_prepared(cursor, wanted):
        cursor.execute(_execute_text(name), parameters)
    else:
        cursor.execute(wanted.text, parameters)


@cache
def _execute_text(name):
    return statement(name).execute


def _is_prepared(cursor, wanted):
    """Whether the statement is prepared; prepares it if it is time to."""
    connection = cursor.db
    session = _SESSIONS.get(connection.connection)
    if session is None:
        session = _SESSIONS[connection.connection] = _Session()
    uses = session.uses[wanted.name] = session.uses.get(wanted.name, 0) + 1
    if uses <= THRESHOLD:
        return False
    if uses == THRESHOLD + 1:
        if session.keeps is None:
            session.keeps = _keeps(cursor)
        if session.keeps:
            cursor.execute(wanted.prepare)
    elif session.keeps and session.is_stale():
        cursor.execute("DISCARD PLANS")
    return session.keeps


def _keeps(cursor):
    """Whether the server keeps what is prepared for this connection.

    A pooler may give every transaction to another backend; the number of the
    backend that it told the client is then none of the server's own.
    """
    connection = cursor.db
    if connection.settings_dict["OPTIONS"].get("server_side_binding"):
        return False  # EXECUTE takes no bound parameters; psycopg 3 prepares by itself
    cursor.execute("SELECT pg_backend_pid()")
    [backend] = cursor.fetchone()
    return backend == connection.connection.info.backend_pid

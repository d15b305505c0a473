"""The statements of this store: one a file, in the folder ``sql``.

To plan one of them takes the server longer than to execute it. What a
connection executes again and again is prepared there once.
"""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from weakref import WeakKeyDictionary
from zlib import crc32

# So often a statement is executed on a connection before it is prepared: a
# connection of a web request may not live longer.
THRESHOLD = 3

_PARAMETER = re.compile(r"%\((\w+)\)s")


@dataclass(frozen=True)
class Statement:
    """A statement as it stands in its file, without comments; and in the words of PREPARE."""

    text: str
    name: str
    names: tuple[str, ...]

    @property
    def prepare(self):
        numbered = _PARAMETER.sub(lambda found: f"${self.names.index(found[1]) + 1}", self.text)
        return f"PREPARE {self.name} AS {numbered}"

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
    return Statement(text, f"atp_{name}_{crc32(text.encode()):08x}", names)


class _Session:
    """What is known of one connection to the server."""

    def __init__(self):
        self.uses = {}
        self.keeps = None


# By the driver's connection, which goes with the session.
_SESSIONS = WeakKeyDictionary()


def execute(cursor, name, parameters):
    """Execute a statement with Django's cursor."""
    wanted = statement(name)
    if _is_prepared(cursor, wanted):
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

"""A statement is a file; prepared where that pays; parameters as text."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from types import TracebackType
from typing import Any, TypeAlias
from zlib import crc32

from django.db import DatabaseError, transaction
from django.db.backends.postgresql.base import DatabaseWrapper
from django.db.backends.utils import CursorWrapper

from ...exceptions import NotSerializable
from ..common.cursors import Bare as AnyBare
from ..common.cursors import is_watched
from .sessions import Session, literal, of_transaction, session_of

# Arrays as text: PostgreSQL reads a hundred values from one parameter.
#
# A driver adapts a list element by element. That takes longer than all other work on a batch;
# joining text does not. A value that all elements share is written once and repeated.

# The database stores no text that contains this character.
_NUL = "\0"


def array(values: Sequence[float | None]) -> str:
    """Return a list of numbers as the text of an array; None becomes NULL."""
    if _are_same(values):
        return _repeated(_number(values[0]), len(values))
    return f"{{{','.join([_number(value) for value in values])}}}"


def texts(values: Sequence[str | None]) -> str:
    """Return a list of texts as the text of an array; None becomes NULL."""
    if _are_same(values):
        return _repeated(_quoted(values[0]), len(values))
    together = None if None in values else _NUL.join(values)  # type: ignore[arg-type]
    if together is None or together.count(_NUL) != len(values) - 1:
        return f"{{{','.join([_quoted(value) for value in values])}}}"
    # All elements in one call, which takes a tenth of the time.
    escaped = together.replace("\\", "\\\\").replace('"', '\\"').replace(_NUL, '","')
    return f'{{"{escaped}"}}'


def _are_same(values: Sequence[Any]) -> bool:
    return len(values) > 1 and values.count(values[0]) == len(values)


def _repeated(text: str, count: int) -> str:
    return f"{{{','.join([text] * count)}}}"


def _number(value: float | None) -> str:
    # The plus turns a subclass such as IntEnum into a plain number.
    return "NULL" if value is None else repr(+value)


def _quoted(text: str | None) -> str:
    if text is None:
        return "NULL"
    # Without quotes, NULL means no value, in upper or lower case.
    if text.isalnum() and (len(text) != 4 or text.upper() != "NULL"):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# The server's error codes, and the ATP error for one of them.

_UNTRANSLATABLE_CHARACTER = "22P05"


def has_code(error: BaseException, code: str) -> bool:
    """Return whether the server gave an error this code, whatever the driver is."""
    of_driver = error.__cause__ if isinstance(error, DatabaseError) else error
    return code in (getattr(of_driver, "sqlstate", None), getattr(of_driver, "pgcode", None))


def refuse_characters(error: DatabaseError) -> None:
    """Raise NotSerializable if the database's encoding lacks a character of the data.

    Only a database without UTF-8 lacks one; the check atp.W017 reports that.
    """
    if has_code(error, _UNTRANSLATABLE_CHARACTER):
        said = str(error).partition("\n")[0]
        raise NotSerializable(f"The queue's database lacks a character: {said}.") from error


# Cursors of this store: they know their session, and one may be kept for reuse.


def cursor_of(connection: DatabaseWrapper, *, again: bool = False) -> "Cursor":
    """Return a context that yields a cursor for statements of this store.

    With ``again``, the driver's cursor is kept for the next such call, with the rows of its last
    answer: use it for short, frequent statements.
    """
    if is_watched(connection, DatabaseWrapper):
        return connection.cursor()
    return Bare(connection, again)


class Bare(AnyBare):
    """The driver's cursor, together with its :class:`Session`."""

    __slots__ = ("_again", "session")

    db: DatabaseWrapper
    session: Session

    def __init__(self, connection: DatabaseWrapper, again: bool = False) -> None:
        self.db = connection
        self._again = again

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None and self._again:
            self.session.keep_cursor(self._cursor)
        else:
            super().__exit__(kind, error, traceback)

    def _open(self, driver: Any) -> Any:
        self.session = session_of(self.db)
        return (self._again and self.session.take_cursor()) or driver.cursor()


Cursor: TypeAlias = Bare | CursorWrapper


# The statements of this store: one in each file of the folder ``sql``.
#
# To plan a statement takes the server longer than to execute it for one Task. A statement that a
# connection executes again and again for few rows is prepared there, and its plan is kept for a
# while. For many rows it is planned each time, for their number.

# A connection prepares a statement after so many executions: the connection of a web request
# may not live longer.
THRESHOLD = 3
# Up to so many rows, the plan for any number of rows is good enough.
FEW = 16

# Statements that only daemons execute. Their sessions plan in a way of their own, as all these
# statements walk along indexes. A table that is filled and emptied all the time has wrong
# statistics; by these the server would read it from end to end for each of hundreds of rows. It
# would also plan a prepared statement anew each time, expecting to gain by that.
_OF_DAEMONS = frozenset(
    {"claim", "claim_careful", "claim_first", "limits", "lock_limits", "outlook"}
    | {"finish", "finish_plain", "finish_unkept", "record", "record_plain"}
    | {"renew", "renew_spare"}
)
PLANNING = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}

# The server's error code for an unknown prepared statement.
_UNKNOWN = "26000"

# Parameters that are part of a statement's text, each with its value.
Fixed: TypeAlias = frozenset[tuple[str, object]]


_PARAMETER = re.compile(r"%\((\w+)\)s")
_COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)


@dataclass(frozen=True)
class Statement:
    """The text of a statement without comments, and the texts for PREPARE and EXECUTE."""

    text: str
    name: str
    names: tuple[str, ...]
    of_daemons: bool = False

    @cached_property
    def prepare(self) -> str:
        numbered = _PARAMETER.sub(lambda found: f"${self.names.index(found[1]) + 1}", self.text)
        return f"PREPARE {self.name} AS {numbered}"

    def execute(
        self, parameters: Mapping[str, Any], *, write: bool = False
    ) -> tuple[str, list[Any] | None]:
        """Return the text of EXECUTE, and the values for the driver to insert.

        With ``write`` the text contains the values, if all of them can be written as literals.
        """
        if not self.names:
            return f"EXECUTE {self.name}", None
        values = [parameters[name] for name in self.names]
        said: list[Any] = [literal(value) for value in values] if write else [None]
        if None in said:
            return f"EXECUTE {self.name} ({', '.join(['%s'] * len(values))})", values
        return f"EXECUTE {self.name} ({', '.join(said)})", None


@cache
def statement(name: str, fixed: Fixed = frozenset()) -> Statement:
    """Return the :class:`Statement` of this name.

    ``fixed`` is a set of pairs (parameter, value). These values are written into the text, since a
    parameter costs time on both sides.
    """
    text = files(__package__).joinpath("sql", f"{name}.sql").read_text()
    literals: dict[str, Any] = {parameter: literal(value) for parameter, value in fixed}
    assert None not in literals.values(), fixed
    text = _PARAMETER.sub(lambda found: literals.get(found[1], found[0]), _COMMENT.sub("", text))
    names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    # A changed text gets a new name, since connections may outlive an upgrade.
    own = f"atp_{name}_{crc32(text.encode()):08x}"
    return Statement(text, own, names, of_daemons=name in _OF_DAEMONS)


def execute(
    cursor: Cursor,
    name: str,
    parameters: Mapping[str, Any],
    *,
    prepared: bool = True,
    fixed: Fixed = frozenset(),
) -> None:
    """Execute a statement with a cursor; ``prepared`` says that it may be prepared.

    ``fixed`` are parameters that are part of the text: see :func:`statement`.
    """
    wanted = statement(name, fixed)
    if wanted.of_daemons and not _plans_own_way(cursor):
        is_outermost = not cursor.db.in_atomic_block
        with transaction.atomic(using=cursor.db.alias):
            lock_timeout = _session(cursor).lock_timeout
            if lock_timeout is not None:
                own = of_transaction(cursor.db.pg_version, is_outermost=is_outermost)
                cursor.execute(f"{own}; {waiting('SET LOCAL', lock_timeout)}")
            cursor.execute(planning("SET LOCAL"))
            cursor.execute(wanted.text, parameters)
        return
    if prepared and _is_prepared(cursor, wanted):
        try:
            # A tool that watches the cursor sees the statement as it is executed, without inputs.
            cursor.execute(*wanted.execute(parameters, write=type(cursor) is Bare))
            return
        except (DatabaseError, cursor.db.Database.DatabaseError) as error:
            if not has_code(error, _UNKNOWN):
                raise
            # The application has discarded the prepared statement. Nothing was done: try again.
            _session(cursor).prepared.discard(wanted.name)
            if not cursor.db.autocommit:
                raise
    cursor.execute(wanted.text, parameters)


def _session(cursor: Cursor) -> Session:
    return cursor.session if type(cursor) is Bare else session_of(cursor.db)


def _plans_own_way(cursor: Cursor) -> bool:
    """Return whether this session plans as a daemon's does; a pooled session never does."""
    session = _session(cursor)
    if session.plans_own_way is None:
        session.plans_own_way = not is_pooled(cursor)
        if session.plans_own_way:
            cursor.execute(planning("SET"))
    return session.plans_own_way


def waiting(verb: str, seconds: float) -> str:
    """Return the statement that limits how long a session or transaction waits for a lock."""
    return f"{verb} lock_timeout = {round(1000 * seconds)}"


def planning(verb: str) -> str:
    """Return the statements that make a session or a transaction plan as a daemon's does."""
    return "; ".join(f"{verb} {name} = {value}" for name, value in PLANNING.items())


def _is_prepared(cursor: Cursor, wanted: Statement) -> bool:
    """Return whether the statement is prepared; prepare it if it has been used enough."""
    session = _session(cursor)
    if wanted.name in session.prepared:
        if session.is_stale():
            cursor.execute("DISCARD PLANS")
        if cursor.db.autocommit or wanted.of_daemons or _is_there(cursor, wanted):
            return True
        session.prepared.discard(wanted.name)
    session.uses[wanted.name] += 1
    if session.uses[wanted.name] <= THRESHOLD or session.keeps is False:
        return False
    if session.keeps is None:
        session.keeps = _keeps(cursor)
        if not session.keeps:
            return False
    # A connection that comes back from a pool, as Django's, is a new session here, and an old one
    # of the server, which has its statements still. Noted only after it succeeds: if it fails, as
    # in a broken transaction, it is tried again later.
    if not _is_there(cursor, wanted):
        cursor.execute(wanted.prepare)
    session.prepared.add(wanted.name)
    return True


def _is_there(cursor: Cursor, wanted: Statement) -> bool:
    """Ask the server whether a statement is still prepared.

    An application may have discarded it, and inside the application's transaction that must
    cause no error. The question costs less than planning the statement.
    """
    cursor.execute("SELECT FROM pg_prepared_statements WHERE name = %s", [wanted.name])
    return cursor.rowcount > 0


def _keeps(cursor: Cursor) -> bool:
    """Return whether the server keeps prepared statements for this connection."""
    if cursor.db.settings_dict["OPTIONS"].get("server_side_binding"):
        return False  # EXECUTE takes no bound parameters; psycopg 3 prepares by itself
    return not is_pooled(cursor)


def is_pooled(cursor: Cursor) -> bool:
    """Return whether there is a pooler between the client and the server.

    A pooler may give each transaction another backend. It tells the client a backend number that
    is not the server's.
    """
    session = _session(cursor)
    if session.is_pooled is None:
        cursor.execute("SELECT pg_backend_pid()")
        [backend] = cursor.fetchone()
        session.is_pooled = backend != cursor.db.connection.info.backend_pid
    return session.is_pooled

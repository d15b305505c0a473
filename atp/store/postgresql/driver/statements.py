"""The statements of this store: one a file, in the folder ``sql``.

To plan one of them takes the server longer than to execute it for one Task.
What a connection executes again and again for few is prepared there, and its
plan kept for a while. For many it is planned each time, for as many as they are.
"""

import re
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from zlib import crc32

from django.db import DatabaseError, transaction

from .codes import has_code
from .cursors import Bare
from .literals import literal
from .own_settings import of_transaction
from .sessions import session_of

# So often a statement is executed on a connection before it is prepared: a
# connection of a web request may not live longer.
THRESHOLD = 3
# For so many rows at most, the plan for any number of rows does.
FEW = 16

# These come from daemons only, whose sessions have a way of planning of their own: all
# that they ask is a walk along indexes. What the server believes of a table that is
# filled and emptied all the time is often far from the truth, and then it reads such a
# table from end to end for each of hundreds of rows. And it would plan anew each time
# what is prepared, since it expects more of that than it gains.
_OF_DAEMONS = frozenset(
    {"claim", "claim_first", "finish", "finish_unkept", "record", "renew", "renew_spare"}
    | {"outlook", "limits"}
    | {"lock_limits"}
)
PLANNING = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}

# What the server calls the error that there is no such prepared statement.
_UNKNOWN = "26000"
# The package beside whose modules the statements lie.
_STATEMENTS = __package__.rpartition(".")[0]

_PARAMETER = re.compile(r"%\((\w+)\)s")
# At the end of a line that stands only where this parameter is not NULL, or only where it is.
_ONLY_WITH = re.compile(r"--.*\bonly (with|without) (\w+)$")
# Stands for a part of a statement, which has a file of its own in the folder ``parts``.
_INCLUDE = re.compile(r"^ *-- include (\w+)$", re.MULTILINE)


@dataclass(frozen=True)
class Statement:
    """A statement as it stands in its file, without comments; and in the words of PREPARE."""

    text: str
    name: str
    names: tuple[str, ...]
    of_daemons: bool = False

    @cached_property
    def prepare(self):
        numbered = _PARAMETER.sub(lambda found: f"${self.names.index(found[1]) + 1}", self.text)
        return f"PREPARE {self.name} AS {numbered}"

    def execute(self, parameters, *, write=False):
        """Return the words of EXECUTE, and the values that the driver has to put there.

        With ``write`` the words say the values too, if all can be written down.
        """
        if not self.names:
            return f"EXECUTE {self.name}", None
        values = [parameters[name] for name in self.names]
        said = [literal(value) for value in values] if write else [None]
        if None in said:
            return f"EXECUTE {self.name} ({', '.join(['%s'] * len(values))})", values
        return f"EXECUTE {self.name} ({', '.join(said)})", None


@cache
def statement(name, fixed=frozenset()):
    """Return the :class:`Statement` of this name.

    ``fixed`` are parameters that it is not given, but says itself, as a set of pairs of
    name and value: each costs both sides something. Lines that are there only with a
    parameter that is NULL are left out.
    """
    text = _read(name)
    literals = {parameter: literal(value) for parameter, value in fixed}
    assert None not in literals.values(), fixed
    without = {parameter for parameter, value in fixed if value is None}
    lines = (_line(line, without) for line in text.splitlines())
    text = "\n".join(line for line in lines if line)
    text = _PARAMETER.sub(lambda found: literals.get(found[1], found[0]), text)
    names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    # Of another version of this text another name: connections may outlive an upgrade.
    own = f"atp_{name}_{crc32(text.encode()):08x}"
    return Statement(text, own, names, of_daemons=name in _OF_DAEMONS)


def _read(*path):
    """Return the text of a file in the folder of the statements, with the parts it includes."""
    *folders, name = path
    text = files(_STATEMENTS).joinpath("sql", *folders, f"{name}.sql").read_text()
    return _INCLUDE.sub(lambda found: _read("parts", found[1]), text)


def _line(line, without):
    """Return a line without its comment; nothing of one that stands for something else."""
    condition = _ONLY_WITH.search(line)
    if condition and (condition[2] in without) == (condition[1] == "with"):
        return ""
    return line.partition("--")[0].rstrip()


def execute(cursor, name, parameters, *, prepared=True, fixed=frozenset()):
    """Execute a statement with a cursor; ``prepared`` if it is for few rows.

    ``fixed`` are parameters that the statement says itself: see :func:`statement`.
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
            # Who looks sees what is executed, and no inputs in it.
            cursor.execute(*wanted.execute(parameters, write=type(cursor) is Bare))
            return
        except (DatabaseError, cursor.db.Database.DatabaseError) as error:
            if not has_code(error, _UNKNOWN):
                raise
            # The application has discarded it. Nothing was done, so it can be done again.
            _session(cursor).prepared.discard(wanted.name)
            if not cursor.db.autocommit:
                raise
    cursor.execute(wanted.text, parameters)


def _session(cursor):
    return cursor.session if type(cursor) is Bare else session_of(cursor.db)


def _plans_own_way(cursor):
    """Whether this session plans as a daemon's does; behind a pooler it is everybody's."""
    session = _session(cursor)
    if session.plans_own_way is None:
        session.plans_own_way = not is_pooled(cursor)
        if session.plans_own_way:
            cursor.execute(planning("SET"))
    return session.plans_own_way


def waiting(verb, seconds):
    """Return the statement that says how long a session, or a transaction, waits for a lock."""
    return f"{verb} lock_timeout = {round(1000 * seconds)}"


def planning(verb):
    """Return the statements that let a session, or a transaction, plan as a daemon's does."""
    return "; ".join(f"{verb} {name} = {value}" for name, value in PLANNING.items())


def _is_prepared(cursor, wanted):
    """Whether the statement is prepared; prepares it if it is time to."""
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
    # Known as prepared only when it is: what fails here, as in a transaction that is
    # broken already, is tried again.
    cursor.execute(wanted.prepare)
    session.prepared.add(wanted.name)
    return True


def _is_there(cursor, wanted):
    """Ask the server whether a statement is still prepared.

    An application may have discarded it, and inside a transaction of its own
    nothing must fail for that. It costs less than to plan the statement.
    """
    cursor.execute("SELECT FROM pg_prepared_statements WHERE name = %s", [wanted.name])
    return cursor.rowcount > 0


def _keeps(cursor):
    """Whether the server keeps what is prepared for this connection."""
    if cursor.db.settings_dict["OPTIONS"].get("server_side_binding"):
        return False  # EXECUTE takes no bound parameters; psycopg 3 prepares by itself
    return not is_pooled(cursor)


def is_pooled(cursor):
    """Whether a pooler stands before the server.

    It may give every transaction to another backend. The number of the
    backend that it told the client is then none of the server's own.
    """
    session = _session(cursor)
    if session.is_pooled is None:
        cursor.execute("SELECT pg_backend_pid()")
        [backend] = cursor.fetchone()
        session.is_pooled = backend != cursor.db.connection.info.backend_pid
    return session.is_pooled

"""The settings of a daemon's sessions: a role, a database or a server may set others.

A daemon's statements rely on what is here: how arrays are read and times written, which version
of a row they see, and that nothing but the daemon cuts them short. An application's sessions
are its own: no statement there relies on any of it, but on ``array_nulls``, for which there is
a system check.
"""

from functools import cache

from ....conf import settings

# Not how backslashes are read: a driver asks that when it connects, and writes texts so.
_READING = {
    "array_nulls": "on",
    "bytea_output": "hex",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    # Every digit of a number: by due times a claim goes on where another ended.
    "extra_float_digits": "1",
}
_TRANSACTIONS = {
    # A statement that has waited for a row looks at it again, and a serialization failure
    # would cost the daemon its identity.
    "default_transaction_isolation": "'read committed'",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
}
_PATIENCE = {
    # The dispatcher bounds each call from outside, and knows then what it has cut.
    "statement_timeout": "0",
    "idle_session_timeout": "0",
}
# The first version that has it, as the server tells versions.
_TRANSACTION_TIMEOUT = 170000
# To walk along an index, and look up row by row, is all that the statements are made for.
_PLANNING = {"enable_indexscan": "on", "enable_indexonlyscan": "on", "enable_nestloop": "on"}
# The first in a transaction that has begun already with what the role sets.
_THIS_TRANSACTION = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"


def of_session(version):
    """Return the statements for a session of its own, on a server of this version."""
    return "; ".join(_lines("SET", version, settings.LEASE))


def of_transaction(version, *, is_outermost):
    """Return the statements for a transaction of a session that a pooler shares."""
    lines = _lines("SET LOCAL", version, settings.LEASE)
    return "; ".join([_THIS_TRANSACTION, *lines] if is_outermost else lines)


@cache
def _lines(verb, version, lease):
    values = _READING | _TRANSACTIONS | _PATIENCE | _PLANNING
    # Who is stopped in a transaction keeps nobody waiting for longer than its lease.
    values["idle_in_transaction_session_timeout"] = str(round(1000 * lease))
    if version >= _TRANSACTION_TIMEOUT:
        values["transaction_timeout"] = "0"
    return [f"{verb} {name} = {value}" for name, value in values.items()]

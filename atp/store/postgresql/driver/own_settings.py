"""The settings of a daemon's sessions, whatever a role, a database or the server sets.

A daemon's statements rely on these settings: how arrays are read and times are written, which
version of a row they see, and that only the daemon itself cuts them short. The sessions of an
application keep their settings. The statements there rely only on ``array_nulls``, for which
there is a system check.
"""

from functools import cache

from ....conf import settings

# The reading of backslashes is missing here: a driver asks for it when it connects, and
# writes texts accordingly.
_READING = {
    "array_nulls": "on",
    "bytea_output": "hex",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    # All digits of a number: a claim goes on from the due time where another ended.
    "extra_float_digits": "1",
}
_TRANSACTIONS = {
    # After waiting for a row, a statement must look at it again. A serialization failure
    # would cost the daemon its identity.
    "default_transaction_isolation": "'read committed'",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
}
_PATIENCE = {
    # The dispatcher limits the time of each call itself, and so knows what it has cut short.
    "statement_timeout": "0",
    "idle_session_timeout": "0",
}
# The first server version with transaction_timeout.
_TRANSACTION_TIMEOUT = 170000
# The statements are made to walk along indexes and to look up row by row.
_PLANNING = {"enable_indexscan": "on", "enable_indexonlyscan": "on", "enable_nestloop": "on"}
# Sent first, since the transaction has begun with the settings of the role.
_THIS_TRANSACTION = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"


def of_session(version):
    """Return the statements that set up a session of a daemon, for this server version."""
    return "; ".join(_lines("SET", version, settings.LEASE))


def of_transaction(version, *, is_outermost):
    """Return the statements that set up a transaction in a session that a pooler shares."""
    lines = _lines("SET LOCAL", version, settings.LEASE)
    return "; ".join([_THIS_TRANSACTION, *lines] if is_outermost else lines)


@cache
def _lines(verb, version, lease):
    values = _READING | _TRANSACTIONS | _PATIENCE | _PLANNING
    # A daemon that is stopped within a transaction blocks others no longer than its lease.
    values["idle_in_transaction_session_timeout"] = str(round(1000 * lease))
    if version >= _TRANSACTION_TIMEOUT:
        values["transaction_timeout"] = "0"
    return [f"{verb} {name} = {value}" for name, value in values.items()]

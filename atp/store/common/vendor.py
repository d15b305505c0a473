"""The answers for a database without a module of its own: see :mod:`..vendors`."""

from contextlib import nullcontext
from datetime import UTC, datetime


def now(connection):
    return datetime.now(UTC)


def lock_folder(connection):
    return None


def log_position(connection):
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(max(id), 0) FROM atp_logrecord")
        return cursor.fetchone()[0]


def file_id(connection):
    return None


def as_guest(connection):
    return nullcontext()


def kept_type(types, identifier):
    return types.select_for_update().filter(identifier=identifier)


def open_transactions(connection, longer, locking, instance):
    return now(connection), []


def end_session(connection, found):
    return False


def sessions(connection, application):
    return []

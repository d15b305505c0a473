"""The connections of a process to the database: opening, losing and closing them."""

import os
import socket

from django.db import DatabaseError, InterfaceError, OperationalError, connections

from ...conf import settings
from ..options import hostname


def is_outage(error):
    """Tell whether an error comes from the connection or the server, not from the statement."""
    # If the connection is lost while psycopg2 waits for an answer, it raises a bare
    # DatabaseError, the base class of all its errors.
    # Use type(): an exception of the application may lie about its __class__, or raise.
    kind = type(error)
    return kind is DatabaseError or issubclass(kind, (OperationalError, InterfaceError, OSError))


def bound_connecting(limit):
    """Set a time limit for connecting to PostgreSQL, unless the project has set one."""
    wrapper = connections[settings.DATABASE]
    if wrapper.vendor == "postgresql":
        wrapper.settings_dict["OPTIONS"].setdefault("connect_timeout", max(2, int(limit)))


def session_name(pid):
    """Return the name by which PostgreSQL knows the sessions of the worker of this pid."""
    return f"atpd-worker {hostname()[:40]}:{pid}"


def name_sessions():
    """Give this worker's sessions of PostgreSQL a name, unless the project has given them one."""
    wrapper = connections[settings.DATABASE]
    if wrapper.vendor == "postgresql":
        name = session_name(os.getpid())
        wrapper.settings_dict["OPTIONS"].setdefault("fallback_application_name", name)


def as_stores_expect():
    """Remove the project's isolation level from this process's PostgreSQL connection."""
    wrapper = connections[settings.DATABASE]
    if wrapper.vendor == "postgresql":
        wrapper.settings_dict["OPTIONS"].pop("isolation_level", None)


def close_connections():
    """Close every connection of this process, and the pools that some of them come from."""
    connections.close_all()
    for connection in connections.all(initialized_only=True):
        # Django's pools of psycopg 3 have threads, which do not survive a fork.
        getattr(connection, "close_pool", lambda: None)()


def shut_down(connection):
    """Shut down the socket of a PostgreSQL connection, so that a thread that waits in it fails."""
    raw = connection.connection if connection is not None else None
    if raw is None or connection.vendor != "postgresql":
        return  # still connecting, which connect_timeout bounds; or SQLite's busy time-out does
    try:
        with socket.socket(fileno=os.dup(raw.fileno())) as link:
            link.shutdown(socket.SHUT_RDWR)
    except Exception:
        return  # the connection is closed already

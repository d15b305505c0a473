"""The connections of a process to the database: opening, losing and closing them."""

from django.db import DatabaseError, InterfaceError, OperationalError, connections

from ...conf import settings


def is_outage(error):
    """Whether an error is about the connection, or the server, and not about what was asked."""
    # Of a connection that is lost while it waits for the answer, psycopg2 says no more
    # than DatabaseError, of which all others are subclasses.
    # By its type: an exception of the application may lie about its class, or raise.
    kind = type(error)
    return kind is DatabaseError or issubclass(kind, (OperationalError, InterfaceError, OSError))


def bound_connecting(limit):
    """Bound the time that connecting to PostgreSQL may take, unless the project has."""
    wrapper = connections[settings.DATABASE]
    if wrapper.vendor == "postgresql":
        wrapper.settings_dict["OPTIONS"].setdefault("connect_timeout", max(2, int(limit)))


def as_stores_expect():
    """Let this process's transactions be as a store expects them, whatever the project's are."""
    wrapper = connections[settings.DATABASE]
    if wrapper.vendor == "postgresql":
        wrapper.settings_dict["OPTIONS"].pop("isolation_level", None)


def close_connections():
    """Close every connection of this process, and the pools that some of them come from."""
    connections.close_all()
    for connection in connections.all(initialized_only=True):
        # Django's pools of psycopg 3 have threads, which do not survive a fork.
        getattr(connection, "close_pool", lambda: None)()

"""Answers that each vendor gives in its own way, for any store on its database.

The modules have the same functions. ``connection`` is one of Django's:

``now(connection)``
    The database's clock, as an aware datetime.
``lock_folder(connection)``
    The folder of the daemons' file locks, or None where leases are times.
``file_id(connection)``
    An identity of the database's file, which a replaced file does not have; None where
    the database is no file.
``log_position(connection)``
    A key: LogRecords that are written later have higher ones.
``as_guest(connection)``
    A context for a daemon's calls on a connection that is somebody else's: see
    :meth:`.contract.Store.as_guest`.
``kept_type(types, identifier)``
    The rows of ``types`` with this identifier, locked against being unregistered.
``take_turn(connection, name)``
    Waits until no other transaction has taken the turn of this name, and has it to the end of
    its own; nothing where whoever writes is alone.
``open_transactions(connection, longer)``
    The database's time, and the transactions of others that are open for ``longer``, in seconds.
"""

from importlib import import_module

_VENDORS = {"postgresql": "atp.store.postgresql.vendor", "sqlite": "atp.store.sqlite.vendor"}
_PORTABLE = "atp.store.common.vendor"


def vendor_of(connection):
    """Return the module for one of Django's connections."""
    return import_module(_VENDORS.get(connection.vendor, _PORTABLE))

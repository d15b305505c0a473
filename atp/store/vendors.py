"""Functions that each vendor's module has, for any store on its database.

``connection`` is one of Django's:

``now(connection)``
    The database's clock, as an aware datetime.
``lock_folder(connection)``
    The folder of the daemons' file locks; None if leases are times.
``file_id(connection)``
    An identity of the database's file, which changes if the file is replaced; None if the
    database is no file.
``log_position(connection)``
    A key that is lower than the keys of all LogRecords written later.
``as_guest(connection)``
    A context in which a daemon may use a connection of an application: see
    :meth:`.contract.Store.as_guest`.
``kept_type(types, identifier)``
    The rows of ``types`` with this identifier, locked so that nobody can unregister them.
``open_transactions(connection, longer, locking, instance)``
    The database's time, and the transactions of other sessions that have been open for
    ``longer`` seconds, or lock something: see :meth:`.contract.Store.open_transactions`.
``sessions(connection, application)``
    What the sessions of this application name do: see :meth:`.contract.Store.sessions`.
"""

from importlib import import_module

_VENDORS = {"postgresql": "atp.store.postgresql.vendor", "sqlite": "atp.store.sqlite.vendor"}
_PORTABLE = "atp.store.common.vendor"


def vendor_of(connection):
    """Return the vendor's module for one of Django's connections."""
    return import_module(_VENDORS.get(connection.vendor, _PORTABLE))

"""Making the session of a database connection as good as new.

Each vendor's module has the same functions. ``connection`` is one of Django's, and
``driver`` the driver's connection below it:

``traits(driver)``
    The settings of a connection that its server does not reset.
``renew(connection, traits)``
    Reset everything that the session has changed. Returns whether it is as good as new;
    if it raises, it is not.
``has_transaction(driver)``
    Whether a transaction is open.
``is_alive(driver, seconds)``
    Whether a connection can be used that has rested for so many seconds.
``bound(driver)``
    A context in which a dead link is noticed within seconds.
"""

from importlib import import_module

_VENDORS = {
    "postgresql": "atp.store.postgresql.driver.renewal",
    "sqlite": "atp.store.sqlite.driver.renewal",
}


def renewal_of(connection):
    """Return the module for one of Django's connections; None if it cannot be renewed."""
    vendor = connection.vendor
    if vendor not in _VENDORS or (vendor == "sqlite" and connection.is_in_memory_db()):
        return None
    return import_module(_VENDORS[vendor])

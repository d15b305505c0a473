"""What each part has: connection, clock, transaction; what a vendor answers."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, overload
from uuid import UUID

from django.apps import apps
from django.db import DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model, QuerySet
from django.utils.functional import cached_property

from ... import messages
from ...models import Daemon, Instance, Kind, LogRecord, Task, Type
from ...querysets import DaemonQuerySet, InstanceQuerySet, LogQuerySet, TaskQuerySet
from ..facts import OpenTransaction, Session
from ..protocol import Commits, Listener

if TYPE_CHECKING:
    from .store import ORMStore

Row = TypeVar("Row", bound=Model)

# Making the session of a database connection as good as new.
#
# Each vendor's module has the same functions. ``connection`` is one of Django's, and
# ``driver`` the driver's connection below it:
#
# ``traits(driver)``
#     The settings of a connection that its server does not reset.
# ``renew(connection, traits)``
#     Reset everything that the session has changed. Returns whether it is as good as new;
#     if it raises, it is not.
# ``has_transaction(driver)``
#     Whether a transaction is open.
# ``is_alive(driver, seconds)``
#     Whether a connection can be used that has rested for so many seconds.
# ``bound(driver)``
#     A context in which a dead link is noticed within seconds.

_SESSIONS = {
    "postgresql": "atp.store.postgresql.sessions",
    "sqlite": "atp.store.sqlite.sessions",
}


def is_in_memory(connection: BaseDatabaseWrapper) -> bool:
    """Return whether this is a database of SQLite without a file."""
    return connection.vendor == "sqlite" and connection.is_in_memory_db()  # type: ignore[attr-defined]


def renewal_of(connection: BaseDatabaseWrapper) -> ModuleType | None:
    """Return the module for one of Django's connections; None if it cannot be renewed."""
    vendor = connection.vendor
    if vendor not in _SESSIONS or is_in_memory(connection):
        return None
    return import_module(_SESSIONS[vendor])


# Sequences that are set back, as tests with ``reset_sequences`` do.
#
# Django's tests may set every sequence back to its beginning, but keep the rows that were written
# after ``migrate`` or ``flush``: the declared Types and their log. New rows would then get the keys
# of those.


def keep_ahead(connection: BaseDatabaseWrapper) -> None:
    """Make this connection's reset of sequences leave ATP's sequences behind existing rows."""
    operations: Any = connection.ops
    if not connection.features.supports_sequence_reset or hasattr(operations, "atp_keeps_ahead"):
        return
    set_back = operations.sequence_reset_by_name_sql

    def and_ours_ahead(style: Any, sequences: Iterable[Any]) -> list[str]:
        own = list(apps.get_app_config("atp").get_models())
        return [*set_back(style, sequences), *operations.sequence_reset_sql(style, own)]

    operations.sequence_reset_by_name_sql = and_ours_ahead
    operations.atp_keeps_ahead = True


# Functions that each vendor's module has, for any store on its database.
#
# ``connection`` is one of Django's:
#
# ``now(connection)``
#     The database's clock, as an aware datetime.
# ``lock_folder(connection)``
#     The folder of the daemons' file locks; None if leases are times.
# ``file_id(connection)``
#     An identity of the database's file, which changes if the file is replaced; None if the
#     database is no file.
# ``log_position(connection)``
#     A key that is lower than the keys of all LogRecords written later.
# ``as_guest(connection)``
#     A context in which a daemon may use a connection of an application: see
#     :meth:`.protocol.Store.as_guest`.
# ``kept_type(types, identifier)``
#     The rows of ``types`` with this identifier, locked so that nobody can unregister them.
# ``open_transactions(connection, longer, locking, instance)``
#     The database's time, and the transactions of other sessions that have been open for
#     ``longer`` seconds, or lock something: see :meth:`.protocol.Store.open_transactions`.
# ``end_session(connection, found)``
#     End the session of this open transaction; returns whether it was there.
# ``sessions(connection, application)``
#     What the sessions of this application name do: see :meth:`.protocol.Store.sessions`.

_ANSWERS = {"postgresql": "atp.store.postgresql.vendor", "sqlite": "atp.store.sqlite.vendor"}
_PORTABLE = "atp.store.common.base"


def vendor_of(connection: BaseDatabaseWrapper) -> ModuleType:
    """Return the vendor's module for one of Django's connections."""
    return import_module(_ANSWERS.get(connection.vendor, _PORTABLE))


# The base classes of the portable store and of its parts.


class ORMBase:
    """What all parts of a store need of the database: its connection, its clock, transactions.

    ``alias`` names the database that holds the queue.
    """

    def __init__(self, alias: str) -> None:
        self.alias = alias

    @property
    def connection(self) -> BaseDatabaseWrapper:
        return connections[self.alias]

    @cached_property
    def vendor(self) -> ModuleType:
        return vendor_of(self.connection)

    @property
    def lock_folder(self) -> Path | None:
        return self.vendor.lock_folder(self.connection)

    def now(self) -> datetime:
        return self.vendor.now(self.connection)

    def open_transactions(
        self, longer: float, *, locking: float | None = None, instance: UUID | None = None
    ) -> tuple[datetime, list[OpenTransaction]]:
        return self.vendor.open_transactions(self.connection, longer, locking, instance)

    def end_session(self, pid: int, *, who: str = "") -> OpenTransaction | None:
        time, found = self.open_transactions(0, locking=0)
        blocking = [
            each for each in found if each.pid == pid and (each.waits_for_it or each.locked)
        ]
        if not blocking or not self.vendor.end_session(self.connection, blocking[0]):
            return None
        [ended] = blocking
        message = messages.session_ended(pid, ended.application, ended.user)
        self.log(Kind.SESSION, message, subject="queue", time=time, who=who, detail=str(pid))
        return ended

    def sessions(self, application: str) -> list[Session]:
        return self.vendor.sessions(self.connection, application)

    def file_id(self) -> tuple[int, ...] | None:
        """Return an identity of the database's file; None if the database is not a file."""
        return self.vendor.file_id(self.connection)

    def atomic(self) -> AbstractContextManager[None]:
        return transaction.atomic(using=self.alias)

    @contextmanager
    def unless_locked(self) -> Iterator[list[DatabaseError]]:
        """Run the block in a savepoint; roll it back if another session's lock lasts too long.

        Yields a list, which is empty afterwards if the block was carried out.
        """
        failed: list[DatabaseError] = []
        try:
            with self.atomic():
                yield failed
        except DatabaseError as error:
            if not self.is_lock(error):
                raise
            failed.append(error)

    def tell(self) -> None:
        """Wake the idle daemons. On a database that cannot notify them, do nothing."""

    def listener(self) -> Listener | None:
        return None

    def commits(self) -> Commits | None:
        return None

    def limit_waiting(self, seconds: float) -> None:
        """Do nothing: this database has no locks of rows."""

    def is_lock(self, error: BaseException) -> bool:
        return False

    def is_deadlock(self, error: BaseException) -> bool:
        """Return whether the database has ended a deadlock by failing this transaction."""
        return False

    def clock_offset(self) -> timedelta:
        offset = self.now() - datetime.now(UTC)
        return timedelta() if abs(offset) < timedelta(seconds=0.1) else offset

    @overload
    def rows(self, model: type[Instance]) -> InstanceQuerySet: ...
    @overload
    def rows(self, model: type[Task]) -> TaskQuerySet: ...
    @overload
    def rows(self, model: type[Daemon]) -> DaemonQuerySet: ...
    @overload
    def rows(self, model: type[LogRecord]) -> LogQuerySet: ...
    @overload
    def rows(self, model: type[Row]) -> QuerySet[Row]: ...
    def rows(self, model: Any) -> Any:
        """Return all rows of ``model`` in the queue's database, as a QuerySet."""
        return model.objects.using(self.alias)

    def log(self, kind: Kind, message: str, **facts: Any) -> None:
        """Write one LogRecord about a Type, a lane or a daemon: see log_record()."""
        self.log_all([self.log_record(kind, message, **facts)])

    def log_record(
        self,
        kind: Kind,
        message: str,
        *,
        subject: str,
        time: datetime,
        who: str,
        detail: str = "",
        level: int = logging.INFO,
    ) -> LogRecord:
        """Return an unsaved LogRecord about a Type, a lane or a daemon."""
        return LogRecord(
            subject=subject,
            time=time,
            kind=kind,
            level=level,
            who=who,
            message=message,
            detail=detail,
        )

    def log_all(self, records: Iterable[LogRecord]) -> None:
        """Write these LogRecords."""
        self.rows(LogRecord).bulk_create(records)


class Part:
    """The base class of the parts of a store, which reach each other through ``store``."""

    def __init__(self, store: "ORMStore") -> None:
        self.store = store
        self.rows = store.rows


# What any other database answers to these functions.


def now(connection: BaseDatabaseWrapper) -> datetime:
    return datetime.now(UTC)


def lock_folder(connection: BaseDatabaseWrapper) -> Path | None:
    return None


def log_position(connection: BaseDatabaseWrapper) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(max(id), 0) FROM atp_logrecord")
        return cursor.fetchone()[0]


def file_id(connection: BaseDatabaseWrapper) -> tuple[int, ...] | None:
    return None


def as_guest(connection: BaseDatabaseWrapper) -> AbstractContextManager[None]:
    return nullcontext()


def kept_type(types: QuerySet[Type], identifier: str) -> QuerySet[Type]:
    return types.select_for_update().filter(identifier=identifier)


def open_transactions(
    connection: BaseDatabaseWrapper, longer: float, locking: float | None, instance: UUID | None
) -> tuple[datetime, list[OpenTransaction]]:
    return now(connection), []


def end_session(connection: BaseDatabaseWrapper, found: OpenTransaction) -> bool:
    return False


def sessions(connection: BaseDatabaseWrapper, application: str) -> list[Session]:
    return []

"""The base class of all parts of the portable store."""

import logging
from contextlib import contextmanager

from django.db import DatabaseError, connections, transaction
from django.utils.functional import cached_property

from ... import messages
from ...models import Kind, LogRecord
from ..protocol import Store
from ..vendors import vendor_of


class ORMBase(Store):
    @property
    def connection(self):
        return connections[self.alias]

    @cached_property
    def vendor(self):
        return vendor_of(self.connection)

    @property
    def lock_folder(self):
        return self.vendor.lock_folder(self.connection)

    def now(self):
        return self.vendor.now(self.connection)

    def open_transactions(self, longer, *, locking=None, instance=None):
        return self.vendor.open_transactions(self.connection, longer, locking, instance)

    def end_session(self, pid, *, who=""):
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

    def sessions(self, application):
        return self.vendor.sessions(self.connection, application)

    def file_id(self):
        """Return an identity of the database's file; None if the database is not a file."""
        return self.vendor.file_id(self.connection)

    def atomic(self):
        return transaction.atomic(using=self.alias)

    @contextmanager
    def unless_locked(self):
        """Run the block in a savepoint; roll it back if another session's lock lasts too long.

        Yields a list, which is empty afterwards if the block was carried out.
        """
        failed = []
        try:
            with self.atomic():
                yield failed
        except DatabaseError as error:
            if not self.is_lock(error):
                raise
            failed.append(error)

    def tell(self):
        """Wake the idle daemons. On a database that cannot notify them, do nothing."""

    def rows(self, model):
        """Return all rows of ``model`` in the queue's database, as a QuerySet."""
        return model.objects.using(self.alias)

    def log(self, kind, message, **facts):
        """Write one LogRecord about a Type, a lane or a daemon: see log_record()."""
        self.log_all([self.log_record(kind, message, **facts)])

    def log_record(self, kind, message, *, subject, time, who, detail="", level=logging.INFO):
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

    def log_all(self, records):
        """Write these LogRecords."""
        self.rows(LogRecord).bulk_create(records)

"""What all parts of the portable store share."""

import logging
import os
from datetime import UTC, datetime
from pathlib import Path

from django.db import connections, transaction

from ...models import LogRecord
from ..base import Store


class ORMBase(Store):
    @property
    def connection(self):
        return connections[self.alias]

    @property
    def lock_folder(self):
        if self.connection.vendor != "sqlite":
            return None
        # Whatever links lead to the file, all who use it find the same folder.
        return Path(f"{Path(self.connection.settings_dict['NAME']).resolve()}-atpd")

    def now(self):
        if self.connection.vendor != "postgresql":
            return datetime.now(UTC)
        with self.connection.cursor() as cursor:
            # As text: psycopg2 gives naive times where USE_TZ is off.
            cursor.execute("SELECT extract(epoch FROM clock_timestamp())::text")
            return datetime.fromtimestamp(float(cursor.fetchone()[0]), UTC)

    def file_id(self):
        """What tells the database's file from another under its name; None where there is none."""
        if self.connection.vendor != "sqlite":
            return None
        try:
            found = os.stat(self.connection.settings_dict["NAME"])
        except OSError:
            return ()
        return found.st_dev, found.st_ino

    def atomic(self):
        return transaction.atomic(using=self.alias)

    def tell(self):
        """Something waits that did not before: where daemons listen, wake those that are idle."""

    def rows(self, model):
        """All rows of ``model`` in the queue's database."""
        return model.objects.using(self.alias)

    def log(self, *, subject, time, who, message, level=logging.INFO):
        """Write one LogRecord about a Type, a lane or a daemon."""
        self.rows(LogRecord).create(
            subject=subject, time=time, who=who, message=message, level=level
        )

"""Telling daemons that have nothing to do that something waits."""

from django.db import transaction

from ..orm.base import ORMBase
from .cursors import cursor_of
from .listener import Listener
from .statements import execute


class Telling(ORMBase):
    def tell(self):
        connection = self.connection
        if not connection.in_atomic_block:
            self._notify()
            return
        # Who is idle by then is to be known when the transaction commits; once is enough.
        waiting = connection.run_on_commit
        if not waiting or waiting[-1][1] != self._notify:
            transaction.on_commit(self._notify, using=self.alias, robust=True)

    def _notify(self):
        with cursor_of(self.connection) as cursor:
            execute(cursor, "notify", {})

    def listener(self):
        return Listener(self.alias)

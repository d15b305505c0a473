"""Telling idle daemons that a Task waits."""

from django.db import transaction

from ..common.base import ORMBase
from .driver.cursors import cursor_of
from .driver.statements import execute
from .listener import Listener


class Telling(ORMBase):
    def tell(self):
        connection = self.connection
        if not connection.in_atomic_block:
            self._notify()
            return
        if getattr(connection.atomic_blocks[0], "_from_testcase", False):
            return  # a test's own transaction is never committed, and tests count what waits for it
        # Notify at commit, once: which daemons are idle then is known only then.
        waiting = connection.run_on_commit
        if not waiting or waiting[-1][1] != self._notify:
            transaction.on_commit(self._notify, using=self.alias, robust=True)

    def _notify(self):
        with cursor_of(self.connection) as cursor:
            execute(cursor, "notify", {})

    def listener(self):
        return Listener(self.alias)

"""The threads of a dispatcher that talk to the database."""

import queue

from django.db import connections

from atp.conf import settings as own
from atp.daemon.dispatcher.database_thread import DatabaseThread
from atp.store import get_store


def test_nothing_is_kept_of_what_it_executes(transactional_db, settings):
    """With DEBUG Django keeps the last 9,000 statements of a connection."""
    settings.DEBUG = True
    results = queue.SimpleQueue()
    thread = DatabaseThread("tests", get_store(), results, lambda: None)

    def call():
        with connections[own.DATABASE].cursor() as cursor:
            cursor.execute("SELECT 1")
        try:
            return len(connections[own.DATABASE].queries_log)
        finally:
            connections[own.DATABASE].close()

    thread.submit("looking", call, print)
    _, result = results.get(timeout=60)
    assert result.error is None
    assert result.value == 0

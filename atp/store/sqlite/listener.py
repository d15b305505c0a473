"""Waiting until somebody else has written to the database.

``PRAGMA data_version`` tells, but has to be asked: every 4 ms that is 1% of a
core, most of it for waking up. So inotify says when to ask. It tells of a write
to the write-ahead log, which comes before its commit by as long as the disk
takes to make it safe; so after one it is asked again and again, at growing
intervals. Idle, that is 0.1% of a core. Where there is no inotify, it is asked
all the time.
"""

import os
import sqlite3
import threading
import time
from pathlib import Path

from .base import SQLiteBase
from .inotify import Watch

# All in seconds. A commit takes about this long from its write on, or less: after a time
# without writes the first looks come sooner. Whoever writes without a pause causes a look
# this often.
SOON = 0.001
SOONER = 0.00025
QUIET = 0.02
# At growing intervals, up to this.
SELDOM = 0.25
# Without inotify.
ALWAYS = 0.005


class Listening(SQLiteBase):
    def listener(self):
        """One that knows of every commit; None for a database in memory."""
        if self.connection.is_in_memory_db():
            return None
        name = str(self.connection.settings_dict["NAME"])
        # A file that is gone must not be made anew.
        uri = name if name.startswith("file:") else f"{Path(name).absolute().as_uri()}?mode=rw"
        return Listener(uri, self.file_id)


class Listener:
    """Tells of commits by all other connections, those of the same process included.

    ``uri`` names the database, ``file_id()`` tells its file from another of that
    name. One thread waits, and any may close it.
    """

    # Nothing is handed over here: what is enqueued is claimed.
    channel = ""

    def __init__(self, uri, file_id):
        self._uri = uri
        self._file_id = file_id
        self._opened = None
        self._connection = self._watch = self._version = None
        self._interval = SOON
        self._written = 0.0
        self._closed = False
        self._in_use = threading.Lock()

    def wait(self, timeout):
        """Wait up to ``timeout`` seconds; tells whether something may have been committed.

        What happens between two waits is told by the second, and the first always
        says yes. While the database cannot be read, nothing is told.
        """
        deadline = time.monotonic() + timeout
        with self._in_use:
            while not self._closed:
                if self._has_changed():
                    self._interval = SOON
                    return True
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._pause(left)
        return False

    def handed(self):
        """Take what has been handed over: nothing."""
        return []

    def close(self):
        """Free what is open. A wait ends within 0.3 s."""
        self._closed = True
        with self._in_use:
            self._disconnect()

    def _has_changed(self):
        try:
            if self._opened != self._file_id():
                self._disconnect()
            if self._connection is None:
                self._connect()
            # A statement of its own: no transaction stays open.
            version = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            return False
        before, self._version = self._version, version
        return version != before

    def _pause(self, left):
        """Sleep until the next look is due, or something is being written."""
        if self._connection is None:
            time.sleep(min(SELDOM, left))
        elif self._watch is None:
            time.sleep(min(ALWAYS, left))
        elif self._interval < SOON:
            self._interval *= 2
            time.sleep(min(self._interval, left))
        elif self._watch.wait(min(self._interval, left)):
            before, self._written = self._written, time.monotonic()
            self._interval = SOONER if self._written - before > QUIET else SOON
            time.sleep(min(self._interval, left))
            self._watch.clear()
        else:
            self._interval = min(self._interval * 2, SELDOM)

    def _connect(self):
        self._opened = self._file_id()
        connection = sqlite3.connect(
            self._uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False
        )
        try:
            # Reading brings the write-ahead log into being, if there is to be one.
            connection.execute("PRAGMA data_version").fetchone()
            [(_, _, path), *_] = connection.execute("PRAGMA database_list")
        except sqlite3.Error:
            connection.close()
            raise
        self._connection, self._watch = connection, _watch(path)

    def _disconnect(self):
        for opened in (self._watch, self._connection):
            if opened is not None:
                opened.close()
        self._connection = self._watch = self._version = None


def _watch(path):
    """Return what tells of writes to the database; None where nothing does."""
    try:
        return Watch([own for own in (path, f"{path}-wal") if os.path.exists(own)])
    except OSError:
        return None

"""Waiting until another connection has written to the database.

``PRAGMA data_version`` shows that, but it has to be asked. Every 4 ms, that is 1% of a core, mostly
for waking up. So inotify says when to ask. It reports a write to the write-ahead log. The commit
follows when the disk has made the write safe, so after a write the pragma is asked again and
again, at growing intervals. An idle listener takes 0.1% of a core. Without inotify, the pragma
is asked all the time.
"""

import os
import sqlite3
import threading
import time
from pathlib import Path
from weakref import WeakValueDictionary

from ..base import SQLiteBase
from . import handover
from .inotify import Watch

# In seconds. A commit follows its write after about SOON, or earlier. After a QUIET time without
# writes, the first looks come after SOONER. A writer that never pauses causes a look every SOON.
SOON = 0.001
SOONER = 0.00025
QUIET = 0.02
# The intervals grow up to this.
SELDOM = 0.25
# The interval without inotify.
ALWAYS = 0.005


# The listeners of this process to which Tasks can be handed, by channel.
LISTENERS = WeakValueDictionary()


class Wakeups(SQLiteBase):
    def listener(self):
        """Return a listener that notices every commit; None for a database in memory."""
        return self._listener(self.lock_folder)

    def commits(self):
        """Return a listener that notices commits and is handed no Tasks."""
        return self._listener(None)

    def _listener(self, folder):
        if self.connection.is_in_memory_db():
            return None
        name = str(self.connection.settings_dict["NAME"])
        # A file that is gone must not be created anew.
        uri = name if name.startswith("file:") else f"{Path(name).absolute().as_uri()}?mode=rw"
        return Listener(uri, self.file_id, folder)


class Listener:
    """Notices commits by all other connections, even those of the same process.

    ``uri`` names the database. ``file_id()`` tells its file from another file of that name. One
    thread waits, and any thread may close the listener.

    A Task that is handed over is named in the database until the daemon writes there again. The
    daemon does not do that before the listener has ``heard`` of the Task: the daemon's uuid and the
    Instance's key. The listener may find that Task again, but reports it once. The channel is the
    name of a file in ``folder``.
    """

    keeps = True
    is_deaf = False
    link = None

    def __init__(self, uri, file_id, folder=None):
        self._uri = uri
        self._file_id = file_id
        self._folder = folder
        # The channel of Tasks that are handed over; empty before the first wait.
        self.channel = ""
        self._channel_lock = None
        self.heard = None
        self._handed = []
        self._opened = None
        self._connection = self._watch = self._version = None
        self._interval = SOON
        self._written = 0.0
        self._closed = False
        self._in_use = threading.Lock()

    def wait(self, timeout):
        """Wait up to ``timeout`` seconds; returns whether something may have been committed.

        A commit between two waits is reported by the second one. The first wait always returns
        True. While the database cannot be read, it reports nothing.
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
        """Take the Tasks handed over so far; see :meth:`~atp.store.protocol.Store.listener`."""
        handed, self._handed = self._handed, []
        return handed

    def close(self):
        """Free all resources. A wait in another thread ends within 0.3 s."""
        self._closed = True
        with self._in_use:
            self._disconnect()
            self.channel = ""
            if self._channel_lock is not None:
                self._channel_lock.close()
                self._channel_lock = None

    def _has_changed(self):
        try:
            if self._opened != self._file_id():
                self._disconnect()
            if self._connection is None:
                self._connect()
            # A statement by itself leaves no transaction open.
            version = self._connection.execute("PRAGMA data_version").fetchone()
            if version == self._version:
                return False
            self._hear()
        except sqlite3.Error:
            return False
        self._version = version
        return True

    def _hear(self):
        """Look for a Task that was handed over."""
        if not self.channel:
            return
        handed = handover.read(self._connection, self.channel)
        if handed is not None and (found := (handed[0], handed[1].instance)) != self.heard:
            self._handed.append(handed)
            self.heard = found

    def _pause(self, left):
        """Sleep until the next look is due, or until something is written."""
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
            # Reading creates the write-ahead log, if the database uses one.
            connection.execute("PRAGMA data_version").fetchone()
            [(_, _, path), *_] = connection.execute("PRAGMA database_list")
        except sqlite3.Error:
            connection.close()
            raise
        self._connection, self._watch = connection, _watch(path)
        if self._channel_lock is None and self._folder is not None:
            self._take_name()

    def _take_name(self):
        """Create and lock the file that names the channel; if that fails, no Task is handed."""
        try:
            self._channel_lock = handover.ChannelLock(self._folder)
        except OSError:
            return
        LISTENERS[self._channel_lock.name] = self
        self.channel = self._channel_lock.name

    def _disconnect(self):
        for opened in (self._watch, self._connection):
            if opened is not None:
                opened.close()
        self._connection = self._watch = self._version = None


def _watch(path):
    """Return a :class:`Watch` of the database's files; None if inotify is not available."""
    try:
        return Watch([own for own in (path, f"{path}-wal") if os.path.exists(own)])
    except OSError:
        return None

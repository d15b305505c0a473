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
from weakref import WeakValueDictionary

from ..base import SQLiteBase
from . import handover
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


# The listeners of this process that can be handed something, by channel.
LISTENERS = WeakValueDictionary()


class Wakeups(SQLiteBase):
    def listener(self):
        """One that knows of every commit; None for a database in memory."""
        return self._listener(self.lock_folder)

    def commits(self):
        """The same, which is handed nothing."""
        return self._listener(None)

    def _listener(self, folder):
        if self.connection.is_in_memory_db():
            return None
        name = str(self.connection.settings_dict["NAME"])
        # A file that is gone must not be made anew.
        uri = name if name.startswith("file:") else f"{Path(name).absolute().as_uri()}?mode=rw"
        return Listener(uri, self.file_id, folder)


class Listener:
    """Tells of commits by all other connections, those of the same process included.

    ``uri`` names the database, ``file_id()`` tells its file from another of that
    name. One thread waits, and any may close it. What is handed over stands in the
    database until the daemon writes there again, which it does not before this has
    ``heard`` it: the daemon's uuid and the Instance's key. What is there then may be
    found again, and is not told again. The channel is the name of a file in ``folder``.
    """

    keeps = True
    is_deaf = False

    def __init__(self, uri, file_id, folder=None):
        self._uri = uri
        self._file_id = file_id
        self._folder = folder
        # Where it hears of what is handed over; empty before the first wait.
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
        """Take what has been handed over; see :meth:`~atp.store.contract.Store.listener`."""
        handed, self._handed = self._handed, []
        return handed

    def close(self):
        """Free what is open. A wait ends within 0.3 s."""
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
            # A statement of its own: no transaction stays open.
            version = self._connection.execute("PRAGMA data_version").fetchone()
            if version == self._version:
                return False
            self._hear()
        except sqlite3.Error:
            return False
        self._version = version
        return True

    def _hear(self):
        """Look for what was handed over."""
        if not self.channel:
            return
        handed = handover.read(self._connection, self.channel)
        if handed is not None and (found := (handed[0], handed[1].instance)) != self.heard:
            self._handed.append(handed)
            self.heard = found

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
        if self._channel_lock is None and self._folder is not None:
            self._take_name()

    def _take_name(self):
        """Make and lock the file of its name; where that cannot be, it is handed nothing."""
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
    """Return what tells of writes to the database; None where nothing does."""
    try:
        return Watch([own for own in (path, f"{path}-wal") if os.path.exists(own)])
    except OSError:
        return None

"""Noticing that somebody has written to the file; the hand-over."""

import contextlib
import ctypes
import os
import select
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from uuid import UUID
from weakref import WeakValueDictionary

from ... import folders
from ..values import Attempt
from .claims import COLUMNS, parameters_of
from .sessions import as_instant

# Handing a Task to an idle daemon, in the transaction that enqueues it.
#
# The daemon's row names the file that its listener has locked. From the handing on, it names the
# Task too: there the listener finds the Task, however late it looks.

# The daemon must be idle by its own word, go on running, and serve the Type. The Task must be the
# one that it would claim first: nothing waits in the lane, and the Type has no gates and no
# limits, and takes no resources.
TAKERS = """
    SELECT atp_daemon.id, host || ':' || pid, channel FROM atp_type CROSS JOIN atp_daemon
    WHERE atp_type.id = %(type)s AND resources IS NULL
      AND idle AND channel <> '' AND NOT instr(channel, ':')
      AND lease_until > %(now)s AND mode = 'running' AND request = ''
      AND identifier IN (SELECT value FROM json_each(types))
      AND NOT EXISTS (
          SELECT 1 FROM atp_gate WHERE type_id IS NULL OR type_id = %(type)s
        UNION ALL
          SELECT 1 FROM atp_limit
          WHERE type_id = %(type)s AND (
              max_running NOT NULL OR max_running_per_collection NOT NULL OR per_second NOT NULL
          )
        UNION ALL
          SELECT 1 FROM atp_downstream
          WHERE name = atp_type.downstream AND atp_downstream.state <> 'closed'
        UNION ALL
          SELECT 1 FROM (
              SELECT 1 FROM atp_task INDEXED BY atp_task_claim
              WHERE type_id = %(type)s AND collection = %(collection)s AND daemon_id IS NULL
              LIMIT 1
          )
      )
"""
# From here on the daemon is not idle until it says so again: it is handed one Task at a time.
TAKE = """
    UPDATE atp_daemon SET idle = false, channel = channel || ':' || %(key)s WHERE id = %(daemon)s
"""
# The Task that a daemon was handed last, if it still holds it, and its channel as it is now.
STANDS = """
    SELECT channel, instance_id FROM atp_daemon
    JOIN atp_task ON instance_id = CAST(substr(channel, length(%(channel)s) + 2) AS integer)
        AND daemon_id = atp_daemon.id
    WHERE uuid = %(daemon)s AND channel > %(channel)s || ':' AND channel < %(channel)s || ';'
"""
# The same with all that an attempt needs, in the driver's style, since the listener has a
# connection of its own.
HANDED = f"""
    SELECT atp_daemon.uuid, task.instance_id, instance.uuid, task.attempt, inputs.format,
        inputs.data, instance.identifier, task.collection, task.priority, instance.retries,
        instance.restarts, instance.lost, instance.own, instance.created, {COLUMNS}
    FROM atp_daemon
    CROSS JOIN atp_task task
        ON task.instance_id = CAST(substr(channel, length(:channel) + 2) AS integer)
        AND task.daemon_id = atp_daemon.id AND task.attempt = 1
    CROSS JOIN atp_instance instance ON instance.id = task.instance_id
    CROSS JOIN atp_inputs inputs INDEXED BY sqlite_autoindex_atp_inputs_1
        ON inputs.instance_id = task.instance_id
    CROSS JOIN atp_type type ON type.id = task.type_id
    WHERE channel > :channel || ':' AND channel < :channel || ';'
"""  # noqa: S608 (names of columns)


def read(connection: sqlite3.Connection, channel: str) -> tuple[UUID, Attempt] | None:
    """Return the Task last handed over on a channel: the daemon's uuid and the Attempt; or None."""
    row = connection.execute(HANDED, {"channel": channel}).fetchone()
    if row is None:
        return None
    daemon, key, name, *rest, created = row[:14]
    parameters = parameters_of(*row[14:])
    claimed = Attempt(  # type: ignore[call-arg]
        key, str(UUID(name)), *rest, parameters, as_instant(created)
    )
    return UUID(daemon), claimed


class ChannelLock:
    """The name of a listener for the lifetime of its process: a file that it has locked."""

    def __init__(self, folder: Path) -> None:
        """Create and lock the file. Raises OSError."""
        folders.make_folder(folder)
        for path in folder.glob("*.ear"):
            if folders.is_free(path):
                folders.remove_file(path)
        self.name = os.urandom(16).hex()
        self._path = _path(folder, self.name)
        # The file is renamed once it is locked; else another process could take it for abandoned.
        made = self._path.with_suffix(".new")
        self._lock = folders.acquire_lock(made)
        made.rename(self._path)

    def close(self) -> None:
        folders.remove_file(self._path)
        os.close(self._lock)


def is_heard(folder: Path, channel: str) -> bool:
    """Return whether a listener has this name; False if that cannot be found out."""
    path = _path(folder, channel)
    try:
        return os.access(path, os.R_OK | os.W_OK) and not folders.is_free(path)
    except OSError:
        return False


def _path(folder: Path, channel: str) -> Path:
    return Path(folder, f"{channel}.ear")


# The part of inotify that is needed: has a file been written to?

_IN_MODIFY = 0x2


class Watch:
    """Watches the files at ``paths`` for writes. Raises OSError if inotify is not available."""

    def __init__(self, paths: Iterable[str]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            self._descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except AttributeError:
            raise OSError("inotify is a part of Linux") from None
        if self._descriptor < 0:
            raise _error()
        for path in paths:
            if libc.inotify_add_watch(self._descriptor, os.fsencode(path), _IN_MODIFY) < 0:
                error = _error()
                self.close()
                raise error
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)

    def wait(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds; returns whether there was a write since clear()."""
        return bool(self._poll.poll(timeout * 1000))

    def clear(self) -> None:
        """Forget all writes so far."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._descriptor, 4096):
                pass

    def close(self) -> None:
        os.close(self._descriptor)


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


# Waiting until another connection has written to the database.
#
# ``PRAGMA data_version`` shows that, but it has to be asked. Every 4 ms, that is 1% of a core,
# mostly for waking up. So inotify says when to ask. It reports a write to the write-ahead log.
# The commit follows when the disk has made the write safe, so after a write the pragma is asked
# again and again, at growing intervals. An idle listener takes 0.1% of a core. Without inotify,
# the pragma is asked all the time.

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
LISTENERS: "WeakValueDictionary[str, Listener]" = WeakValueDictionary()


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
    _connection: Any
    _watch: Watch | None
    _version: tuple[int] | None

    def __init__(
        self, uri: str, file_id: Callable[[], tuple[int, ...] | None], folder: Path | None = None
    ) -> None:
        self._uri = uri
        self._file_id = file_id
        self._folder: Any = folder
        # The channel of Tasks that are handed over; empty before the first wait.
        self.channel = ""
        self._channel_lock: ChannelLock | None = None
        self.heard: tuple[UUID, int] | None = None
        self._handed: list[tuple[UUID, Attempt]] = []
        self._opened: tuple[int, ...] | None = None
        self._connection = self._watch = self._version = None
        self._interval = SOON
        self._written = 0.0
        self._closed = False
        self._in_use = threading.Lock()

    def wait(self, timeout: float) -> bool:
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

    def handed(self) -> list[tuple[UUID, Attempt]]:
        """Take the Tasks handed over so far; see :meth:`~atp.store.protocol.Store.listener`."""
        handed, self._handed = self._handed, []
        return handed

    def close(self) -> None:
        """Free all resources. A wait in another thread ends within 0.3 s."""
        self._closed = True
        with self._in_use:
            self._disconnect()
            self.channel = ""
            if self._channel_lock is not None:
                self._channel_lock.close()
                self._channel_lock = None

    def _has_changed(self) -> bool:
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

    def _hear(self) -> None:
        """Look for a Task that was handed over."""
        if not self.channel:
            return
        handed = read(self._connection, self.channel)
        if handed is not None and (found := (handed[0], handed[1].instance)) != self.heard:
            self._handed.append(handed)
            self.heard = found

    def _pause(self, left: float) -> None:
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

    def _connect(self) -> None:
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

    def _take_name(self) -> None:
        """Create and lock the file that names the channel; if that fails, no Task is handed."""
        try:
            self._channel_lock = ChannelLock(self._folder)
        except OSError:
            return
        LISTENERS[self._channel_lock.name] = self
        self.channel = self._channel_lock.name

    def _disconnect(self) -> None:
        for opened in (self._watch, self._connection):
            if opened is not None:
                opened.close()
        self._connection = self._watch = self._version = None


def _watch(path: str) -> Watch | None:
    """Return a :class:`Watch` of the database's files; None if inotify is not available."""
    try:
        return Watch([own for own in (path, f"{path}-wal") if os.path.exists(own)])
    except OSError:
        return None

"""A proxy before PostgreSQL: connecting is slow, a connection goes silent, an answer is lost."""

import contextlib
import socket
import threading
import time

from django.db import connection

from tests import patience
from tests.helpers import wait_for

READY = b"Z\x00\x00\x00\x05I"  # the server's last message while connecting
RESPONSE = b'INSERT INTO "atp_response"'


class Proxy:
    """Stands before the server, at ``url``, as long as its block lasts."""

    def __init__(self):
        entry = connection.settings_dict
        self._server = entry["HOST"] or entry["OPTIONS"].get("host", "localhost")
        self._port = int(entry["PORT"] or 5432)
        self._wakeups = socket.create_server(("127.0.0.1", 0))
        login = f"{entry['USER']}:{entry['PASSWORD']}"
        place = f"127.0.0.1:{self._wakeups.getsockname()[1]}"
        # Longer than a delay, which grows with the patience of the tests.
        limit = int(10 * patience.factor())
        self.url = f"postgresql://{login}@{place}/{entry['NAME']}?connect_timeout={limit}"
        self.dead, self.swallowed = threading.Event(), threading.Event()
        self._ended, self._swallows = threading.Event(), threading.Event()
        self._delay = None
        self._open = []

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._wakeups.close()
        self._ended.set()
        wait_for(self._is_over, what="the end of all links")

    def _is_over(self):
        # One that was just being made is shut the next time.
        _shut(*self._open)
        return all(end.fileno() < 0 for end in self._open)

    def die_after_connecting(self, delay):
        """End all connections; the next ones are slow to connect, and then go silent."""
        self._delay = delay
        _shut(*self._open)

    def recover(self):
        self._delay = None

    def swallow_commit(self):
        """The next connection that writes a Response and commits is cut, and not told of it."""
        self._swallows.set()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._wakeups.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        delay = self._delay
        if delay is not None:
            time.sleep(delay)
        server = self._connect()
        self._open += [client, server]
        silent, written, committing = threading.Event(), threading.Event(), threading.Event()

        def is_last_request(data):
            if RESPONSE in data:
                written.set()
            if written.is_set() and b"COMMIT" in data:
                committing.set()
            return silent.is_set()

        def is_last_answer(data):
            if silent.is_set():
                return True
            if delay is not None and READY in data:
                silent.set()
                self.dead.set()
            if committing.is_set() and self._swallows.is_set() and b"COMMIT" in data:
                self._swallows.clear()
                self.swallowed.set()
                _shut(client, server)
                return True
            return False

        up = threading.Thread(target=_pump, args=(client, server, is_last_request), daemon=True)
        up.start()
        _pump(server, client, is_last_answer)
        up.join()
        self._ended.wait()  # a link that is silent is not cut either
        for end in (client, server):
            end.close()

    def _connect(self):
        if self._server.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{self._server}/.s.PGSQL.{self._port}")
            return server
        return socket.create_connection((self._server, self._port))


def _pump(source, target, is_last):
    """Pass on what comes until one is the last: that is not passed on, and nobody is told."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if is_last(data):
                return
            target.sendall(data)
    _shut(source, target)


def _shut(*ends):
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)

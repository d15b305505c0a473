"""A proxy before PostgreSQL that makes connecting slow and lets a connection go silent."""

import contextlib
import socket
import threading
import time

from django.db import connection

from tests import patience
from tests.helpers import wait_for


class SlowProxy:
    """Stands before the server; can make connecting slow, and a new connection go silent."""

    READY = b"Z\x00\x00\x00\x05I"  # the server's last message while connecting

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
        self.dead = threading.Event()
        self._ended = threading.Event()
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
        self._shut_all()
        return all(end.fileno() < 0 for end in self._open)

    def die_after_connecting(self, delay):
        self._delay = delay
        self._shut_all()

    def recover(self):
        self._delay = None

    def _shut_all(self):
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._wakeups.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        slow = self._delay
        if slow is not None:
            time.sleep(slow)
        server = self._connect()
        self._open += [client, server]
        silent = threading.Event()
        up = threading.Thread(target=self._pump, args=(client, server, silent), daemon=True)
        up.start()
        self._pump(server, client, silent, slow is not None)
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

    def _pump(self, source, target, silent, then_die=False):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if silent.is_set():
                    return  # nothing more goes through, and nobody is told
                if then_die and self.READY in data:
                    silent.set()
                    self.dead.set()
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class SwallowingProxy(SlowProxy):
    """Stands before the server; swallows the answer to one COMMIT, and cuts that connection."""

    RESPONSE = b'INSERT INTO "atp_response"'

    def __init__(self):
        super().__init__()
        self.swallowed = threading.Event()
        self._wanted = threading.Event()

    def swallow_commit(self):
        """The next connection that writes a Response and commits is not told that it has."""
        self._wanted.set()

    def _serve(self, client):
        server = self._connect()
        self._open += [client, server]
        committing = threading.Event()
        up = threading.Thread(target=self._up, args=(client, server, committing), daemon=True)
        up.start()
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if committing.is_set() and self._wanted.is_set() and b"COMMIT" in data:
                    self._wanted.clear()
                    self.swallowed.set()
                    break
                client.sendall(data)
        self._shut(client, server)
        up.join()
        for end in (client, server):
            end.close()

    def _up(self, client, server, committing):
        has_written = False
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                has_written = has_written or self.RESPONSE in data
                if has_written and b"COMMIT" in data:
                    committing.set()
                server.sendall(data)
        self._shut(client, server)

    @staticmethod
    def _shut(*ends):
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

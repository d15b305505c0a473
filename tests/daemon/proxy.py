"""A proxy before PostgreSQL that makes connecting slow and lets a connection go silent."""

import contextlib
import socket
import threading
import time

from django.db import connection


class SlowProxy:
    """Stands before the server; can make connecting slow, and a new connection go silent."""

    READY = b"Z\x00\x00\x00\x05I"  # the server's last message while connecting

    def __init__(self):
        entry = connection.settings_dict
        self._server = entry["HOST"] or entry["OPTIONS"].get("host", "localhost")
        self._port = int(entry["PORT"] or 5432)
        self._listening = socket.create_server(("127.0.0.1", 0))
        login = f"{entry['USER']}:{entry['PASSWORD']}"
        place = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.url = f"postgresql://{login}@{place}/{entry['NAME']}?connect_timeout=10"
        self.dead = threading.Event()
        self._delay = None
        self._open = []

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listening.close()
        self._shut_all()

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
                client, _ = self._listening.accept()
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

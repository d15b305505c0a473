"""A real server that takes webhooks and is fetched from, and may be away for a while."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from standardwebhooks import Webhook


class Received(NamedTuple):
    """A request: its headers by small names, its body, and its path."""

    headers: dict
    body: bytes
    path: str

    @property
    def id(self):
        return self.headers["webhook-id"]


class Receiver:
    """Takes requests while it is up; ``answers`` are the next statuses, then 204.

    An answer with headers is a tuple of both. The body of an answer to GET is "found".
    """

    def __init__(self, secret):
        self.received = []
        self.answers = []
        self._secret = secret
        self._server = None
        self._lock = threading.Lock()
        self._port = 0
        self.up()
        self._port = self._server.server_port

    @property
    def origin(self):
        return f"http://127.0.0.1:{self._port}"

    @property
    def url(self):
        return f"{self.origin}/hooks"

    def verified(self, received):
        """Return the message of a request. Raises WebhookVerificationError."""
        return Webhook(self._secret).verify(received.body, received.headers)

    def ids(self):
        """The ids of all messages that were taken."""
        with self._lock:
            return {each.id for each in self.received}

    def up(self):
        """Listen, at the port that it had before."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), _Handler)
        self._server.receiver = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def down(self):
        """Be away: nobody listens."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None

    def take(self, received):
        """Keep a request; returns the answer, a status and headers."""
        with self._lock:
            self.received.append(received)
            answer = self.answers.pop(0) if self.answers else 204
        return answer if isinstance(answer, tuple) else (answer, {})


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, more = self.server.receiver.take(Received(headers, body, self.path))
        found = b"found" if self.command == "GET" else b""
        self.send_response(status)
        plain = {"content-type": "text/plain", "content-length": str(len(found))}
        for name, value in (plain | more).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(found)

    do_GET = do_POST  # noqa: N815

    def log_message(self, *args):
        """Nothing: tests look at what was received."""


@contextmanager
def receiver(secret):
    """Yield a :class:`Receiver`; it is down afterwards."""
    made = Receiver(secret)
    try:
        yield made
    finally:
        made.down()

"""A stand-in for a service: an HTTP server that answers so many calls a second."""

import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

OK, REFUSED, DOWN = 200, 429, 503


class StandIn:
    """What it answers, and what it has answered: ``answers`` are pairs of a time and a status.

    With ``is_down`` it answers 503. A call that comes while it ``hangs`` is answered when it
    does not any more.
    """

    def __init__(self, rate, burst):
        self._rate, self._burst = rate, burst
        self._lock = threading.Lock()
        self._tokens, self._at = float(burst), time.monotonic()
        self._goes_on = threading.Event()
        self._goes_on.set()
        self.is_down = False
        self.answers, self.calls = [], []
        self.url = ""

    @property
    def hangs(self):
        return not self._goes_on.is_set()

    @hangs.setter
    def hangs(self, value):
        (self._goes_on.clear if value else self._goes_on.set)()

    def answer(self):
        """Return the status of a call."""
        self.calls.append(time.monotonic())
        self._goes_on.wait()
        with self._lock:
            now = time.monotonic()
            status = self._status(now)
            self.answers.append((now, status))
        return status

    def _status(self, now):
        if self.is_down:
            return DOWN
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1:
            return REFUSED
        self._tokens -= 1
        return OK

    def count(self, status, since, until=float("inf")):
        """Return how many calls were answered so in this time."""
        with self._lock:
            return sum(since <= at < until and each == status for at, each in self.answers)


@contextmanager
def stand_in(rate=20, burst=5):
    """Run a :class:`StandIn` until the end of the block."""
    found = StandIn(rate, burst)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(found.answer())
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args):
            """Nothing is told."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found.url = f"http://127.0.0.1:{server.server_address[1]}/"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.hangs = False
        server.shutdown()
        server.server_close()
        thread.join()

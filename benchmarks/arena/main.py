"""The adapter of ATP for the arena: one process that speaks its protocol, and an atpd beside it.

The protocol is that of https://github.com/hardbyte/postgresql-job-queue-benchmarking: the
environment says what to do, standard input brings ``ENQUEUE n``, standard output takes one JSON
object a line. See README.md.
"""

import collections
import ctypes
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

SYSTEM = "atp"
MANIFEST = json.loads((Path(__file__).parent / "adapter.json").read_text())
# Seconds of the window of the latencies, and how many of them are kept.
WINDOW, MOST = 30, 32_768
PR_SET_PDEATHSIG = 1
# A daemon that stops has this long for what runs, in seconds.
GRACE = 3


def main() -> int:
    import django
    from django.core.management import call_command
    from django.db import connections

    folder = tempfile.TemporaryDirectory(prefix="atp-arena-")
    os.environ["ARENA_SOCKET"] = str(Path(folder.name) / "reports")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.arena.settings")
    django.setup()
    _with_lock(lambda: call_command("migrate", verbosity=0))
    connections.close_all()
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    counts = Counts(os.environ["ARENA_SOCKET"])
    daemon = subprocess.Popen(
        [
            *(sys.executable, "-m", "django", "atpd", f"--grace={GRACE}"),
            f"--processes={_number('WORKER_COUNT', 32)}",
        ],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 (no other thread runs yet)
    )
    _describe()
    producer = Producer(counts, stopping)
    for work in (producer.run, counts.receive, Depth(counts, stopping).run):
        threading.Thread(target=work, daemon=True).start()
    _sample(counts, producer, stopping, daemon)
    daemon.terminate()
    daemon.wait()
    folder.cleanup()
    return 0


def _number(name: str, default: int) -> int:
    return int(os.environ.get(name, default))


def _die_with_parent() -> None:
    # The arena kills a replica with SIGKILL, and its daemon is part of it.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _with_lock(call: Callable[[], object]) -> None:
    """Call a function while no other replica does so."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(1)")
        call()
        cursor.execute("SELECT pg_advisory_unlock(1)")


def _tell(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _describe() -> None:
    from importlib.metadata import version

    _tell(
        kind="descriptor",
        system=SYSTEM,
        event_tables=MANIFEST["event_tables"],
        extensions=[],
        version=version("django-atp"),
        schema_version=version("django-atp"),
        db_name=urlsplit(os.environ["DATABASE_URL"]).path.lstrip("/"),
        started_at=_now(),
    )


class Counts:
    """What has been enqueued and done so far, how long it waited, and how much waits now."""

    def __init__(self, path: str) -> None:
        self.enqueued = self.done = self.depth = 0
        self._waits = collections.deque(maxlen=MOST)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._socket.bind(path)

    def receive(self) -> None:
        """Take the reports of the handlers, for ever."""
        from .tasks import REPORT

        while True:
            [waited] = REPORT.unpack(self._socket.recv(REPORT.size))
            self._waits.append((time.monotonic(), waited))
            self.done += 1

    def quantiles(self, *at: float) -> list[float]:
        """Return quantiles of the waits of the last WINDOW seconds, in milliseconds."""
        since = time.monotonic() - WINDOW
        waits = sorted(waited for when, waited in list(self._waits) if when >= since)
        return [1000 * waits[math.ceil(q * len(waits)) - 1] for q in at] if waits else []


class Producer:
    """Enqueues what standard input says, or at a rate, or up to a depth."""

    def __init__(self, counts: Counts, stopping: threading.Event) -> None:
        self._counts, self._stopping = counts, stopping
        self._most = max(1, _number("PRODUCER_BATCH_MAX", 128))
        self._every = max(1, _number("PRODUCER_BATCH_MS", 25)) / 1000
        self._padding = "x" * max(0, _number("JOB_PAYLOAD_BYTES", 256) - 48)
        self._number = 0
        self.rate = float(_number("PRODUCER_RATE", 800))

    def run(self) -> None:
        if os.environ.get("PRODUCER_MODE") == "depth-target":
            batches = self._to_depth(_number("TARGET_DEPTH", 1000))
        elif os.environ.get("PRODUCER_PACING") == "harness":
            batches = self._as_told()
        else:
            batches = self._at_rate()
        for number in batches:
            self._enqueue(number)

    def _as_told(self) -> Iterator[int]:
        while line := sys.stdin.readline():
            word, _, number = line.partition(" ")
            if word == "ENQUEUE":
                yield int(number)

    def _at_rate(self) -> Iterator[int]:
        credit, last = 0.0, time.monotonic()
        while not self._stopping.wait(self._every):
            self.rate = self._controlled()
            now = time.monotonic()
            credit, last = credit + self.rate * (now - last), now
            while credit >= 1:
                batch = min(int(credit), self._most)
                credit -= batch
                yield batch

    def _to_depth(self, target: int) -> Iterator[int]:
        while not self._stopping.is_set():
            if batch := min(self._most, max(0, target - self._counts.depth)):
                yield batch
                self._counts.depth += batch
            else:
                time.sleep(self._every)

    def _controlled(self) -> float:
        try:
            return float(Path(os.environ["PRODUCER_RATE_CONTROL_FILE"]).read_text())
        except (KeyError, OSError, ValueError):
            return self.rate

    def _enqueue(self, number: int) -> None:
        from django.db import Error, connection

        from .tasks import job

        first, self._number = self._number, self._number + number
        created = time.time()
        inputs = [
            {"number": first + each, "created": created, "padding": self._padding}
            for each in range(number)
        ]
        try:
            job.enqueue_many(inputs) if number > 1 else job.enqueue(**inputs[0])
            self._counts.enqueued += number
        except Error as error:  # the server is away: what it has not taken does not count
            print(f"not enqueued: {error}", file=sys.stderr)
            connection.close()
            time.sleep(self._every)


class Depth:
    """Counts what waits, once a second."""

    def __init__(self, counts: Counts, stopping: threading.Event) -> None:
        self._counts, self._stopping = counts, stopping

    def run(self) -> None:
        from django.db import Error, connection

        from atp.models import Instance

        waiting = Instance.objects.filter(type__identifier="arena.job", state="ACCEPTED")
        while not self._stopping.wait(1):
            try:
                self._counts.depth = waiting.count()
            except Error:
                connection.close()


def _sample(
    counts: Counts, producer: Producer, stopping: threading.Event, daemon: subprocess.Popen[bytes]
) -> None:
    """Say every SAMPLE_EVERY_S seconds how it goes, until it is told to stop."""
    every = _number("SAMPLE_EVERY_S", 5)
    last, enqueued, done = time.monotonic(), counts.enqueued, counts.done
    while not stopping.wait(every - time.time() % every):
        now, at = time.monotonic(), _now()
        span = now - last
        found = {
            "enqueue_rate": (counts.enqueued - enqueued) / span,
            "completion_rate": (counts.done - done) / span,
            "queue_depth": counts.depth,
            "producer_target_rate": producer.rate,
        }
        last, enqueued, done = now, counts.enqueued, counts.done
        for name, value in found.items():
            _metric(at, name, value, 0 if name == "queue_depth" else every)
        names = ("claim_p50_ms", "claim_p95_ms", "claim_p99_ms")
        for name, value in zip(names, counts.quantiles(0.5, 0.95, 0.99), strict=False):
            _metric(at, name, value, WINDOW)
        if daemon.poll() is not None:
            raise SystemExit(f"atpd has ended with status {daemon.returncode}")


def _metric(at: str, name: str, value: float, window: int) -> None:
    _tell(
        t=at,
        system=SYSTEM,
        kind="adapter",
        subject_kind="adapter",
        subject="",
        metric=name,
        value=value,
        window_s=window,
    )


if __name__ == "__main__":
    sys.exit(main())

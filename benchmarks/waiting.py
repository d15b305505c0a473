"""What clients that wait with ``?wait=`` leave of a web server for others.

So many clients at once ask one server for the end of an Instance each, and no daemon works.
Meanwhile both probes are asked again and again. Who may not wait, or is not even told of
its Instance, asks again after the time that the answer says, for as long as it wanted to
wait. It is told how many waited, how many connections the database had at most, and how
long the probes took: alone, while the clients arrive, and from then on.
"""

import asyncio
import socket
import threading
import time
from datetime import timedelta
from http import HTTPStatus

from .core import web
from .core.batch import BatchError
from .core.report import percentile

PROMPT_MS, MOST_CONNECTIONS = 100, 10
WARM_UP = 16
ALONE = "alone"
PHASES = (ALONE, "arriving", "waiting")
SERVERS = {"gunicorn": web.gunicorn, "uvicorn": web.uvicorn}
PATHS = {"queue": "/atp/api/health", "live": web.LIVE}


def add_arguments(add):
    add("--clients", type=int, default=200, help="clients that wait at once")
    add("--wait", type=int, default=30, help="seconds that each wants to wait")
    add("--arrive", type=int, default=5, help="seconds in which the clients arrive")
    add("--alone", type=int, default=5, help="seconds before they do")


def run(options, report):
    for name, command in SERVERS.items():
        _report(report, name, [_once(command, options) for _ in range(options.runs)])


def _report(report, name, runs):
    answers, probes, connections = zip(*runs, strict=True)
    waited = [sum(has_waited for _, has_waited in found) for found in answers]
    report.row(f"{name}, clients that could wait", waited, unit="")
    if None not in connections:
        most = max(connections)
        report.row(f"{name}, most connections", connections, unit="")
        if most > MOST_CONNECTIONS:
            report.exceeded.append(f"{name}: {most} connections, not {MOST_CONNECTIONS}")
    for path in PATHS:
        for when in PHASES:
            taken = [[1000 * second for second in found[path][when]] for found in probes]
            figure = f"{name}, {path}, {when}"
            for share in (0.5, 0.99):
                told = [percentile(each, share) for each in taken]
                report.row(f"{figure}, p{100 * share:.0f}", told, unit="ms")
            longest = report.row(f"{figure}, longest", [max(each) for each in taken], unit="ms")
            if when != ALONE and longest > PROMPT_MS:
                report.exceeded.append(f"{figure}: {longest:.0f} ms, not {PROMPT_MS}")


def _once(command, options):
    """Return the last answers, how long the probes took, and the most connections, if known."""
    from django.db import connection

    with socket.socket() as found:
        found.bind((web.HOST, 0))
        port = found.getsockname()[1]
    cookie, uuids = _prepared(options.clients)
    log = options.directory / "server.log"
    with web.serving(command("demo_project", port), port, log), _Connections(connection) as most:
        answers, probes = asyncio.run(_asked(port, cookie, uuids, options))
    if any(answer.status != HTTPStatus.OK for answer, _ in answers):
        raise BatchError("A client was not answered with its Instance.")
    return answers, probes, most.count


def _prepared(count):
    """Enqueue Instances, and return a reader's cookie and their uuids."""
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.test import Client

    from atp import queue

    from .tasks import other

    queue.register_all()
    user, _ = User.objects.get_or_create(username="reader", defaults={"is_superuser": True})
    client = Client()
    client.force_login(user)
    name = settings.SESSION_COOKIE_NAME
    later = other.using(run_after=timedelta(hours=1))
    instances = later.enqueue_many([{"number": number} for number in range(count)])
    return f"{name}={client.cookies[name].value}", [instance.uuid for instance in instances]


async def _asked(port, cookie, uuids, options):
    # What is imported and prepared with the first requests is not measured.
    for path in [*PATHS.values()] * WARM_UP:
        await web.get(port, path)
    ends = {when: asyncio.Event() for when in PHASES}
    probes = {path: asyncio.create_task(_probed(port, path, ends)) for path in PATHS}
    await asyncio.sleep(options.alone)
    ends[ALONE].set()
    clients = []
    for uuid in uuids:
        clients.append(asyncio.create_task(_waited(port, cookie, uuid, options.wait)))
        await asyncio.sleep(options.arrive / len(uuids))
    ends["arriving"].set()
    answers = await asyncio.gather(*clients)
    ends["waiting"].set()
    return answers, {path: await found for path, found in probes.items()}


async def _probed(port, path, ends):
    """Return the seconds that a probe took, in each phase until its end."""
    found = {}
    for when, event in ends.items():
        answers = await web.probing(port, PATHS[path], event)
        if any(answer.status != HTTPStatus.OK for answer in answers):
            raise BatchError("A probe was told that something is wrong.")
        found[when] = [answer.seconds for answer in answers]
    return found


async def _waited(port, cookie, uuid, seconds):
    """Ask for an Instance until the time is over; return the last answer, and if it waited."""
    deadline = time.monotonic() + seconds
    while True:
        left = max(0.0, deadline - time.monotonic())
        path = f"/atp/api/instances/{uuid}?wait={left:.3f}"
        answer = await web.get(port, path, Cookie=cookie)
        after = answer.headers.get("retry-after")
        is_last = after is None or time.monotonic() + int(after) > deadline
        if is_last and answer.status != HTTPStatus.TOO_MANY_REQUESTS:
            return answer, after is None and left > 0
        await asyncio.sleep(int(after))


class _Connections(threading.Thread):
    """Counts the connections of others to the database, and keeps the most; None if unknown."""

    def __init__(self, connection):
        super().__init__(daemon=True)
        self._wrapper = connection
        self._is_over = threading.Event()
        self.count = None

    def run(self):
        if self._wrapper.vendor != "postgresql":
            return
        own = self._wrapper.copy()
        with own.cursor() as cursor:
            while not self._is_over.wait(0.02):
                cursor.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
                )
                self.count = max(self.count or 0, cursor.fetchone()[0])
        own.close()

    def __enter__(self):
        self._wrapper.close()
        self.start()
        return self

    def __exit__(self, *exc):
        self._is_over.set()
        self.join()

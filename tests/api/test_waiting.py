"""Clients that wait for an Instance on real web servers: resources, responses and limits."""

import asyncio
import json
import socket
import threading
import time
from collections import Counter
from contextlib import ExitStack

import psutil
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import DEFAULT_DB_ALIAS, OperationalError, connection, connections, transaction
from django.test import Client

from atp import queue
from atp.api import waiting
from atp.api.schema import LONGEST_WAIT
from atp.api.waiting import RATE, SOONEST, Turns
from atp.models import Instance
from atp.reports.ends import Ends
from atp.states import Event, State
from benchmarks.core import web

from .. import environment
from ..app.tasks import echo
from ..helpers import Thread, child_environment, wait_for
from .client import refusal

pytestmark = pytest.mark.django_db(transaction=True)

CLIENTS, WAIT = 200, 60
# A machine under load is slow; a server that clients starve would take ten minutes.
PROMPT = 60
# Of all clients together.
MOST_CONNECTIONS = 10
IN_TIME = 100
IS_POSTGRESQL = environment.kind() != "sqlite"


@pytest.fixture(autouse=True)
def turns(monkeypatch):
    """Let each test start as if no client had been told to retry later."""
    monkeypatch.setattr("atp.api.instances.turns", Turns())


class Server:
    """A web server on the database of the test, and the login of a user who can read."""

    def __init__(self, port, process, user):
        self.port, self.process = port, process
        client = Client()
        client.force_login(user)
        name = settings.SESSION_COOKIE_NAME
        self.login = {"Cookie": f"{name}={client.cookies[name].value}"}

    def wait_for(self, instance, seconds, ask=web.get):
        path = f"/atp/api/instances/{instance.uuid}?wait={seconds}"
        return ask(self.port, path, **self.login)

    def threads(self):
        """Return the number of threads of all processes of the server."""
        family = [self.process, *psutil.Process(self.process.pid).children(recursive=True)]
        return sum(psutil.Process(each.pid).num_threads() for each in family)


@pytest.fixture
def serve(tmp_path, world, user_with):
    """Start a web server: ``serve("gunicorn", MAX_WAITERS=1)`` sets settings of ATP."""
    with ExitStack() as stack:

        def start(kind, **given):
            with socket.socket() as found:
                found.bind((web.HOST, 0))
                port = found.getsockname()[1]
            command = getattr(web, kind)("tests", port)
            own = child_environment(ATP_TEST_SETTINGS=json.dumps(given))
            serving = web.serving(command, port, tmp_path / f"{kind}.log", own)
            return Server(port, stack.enter_context(serving), user_with("view_instance"))

        yield start


def connected():
    """Return how many connections other processes have to the database of the test."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                " AND backend_type = 'client backend'"
            )
            return cursor.fetchone()[0]
    finally:
        connection.close()


async def most_connections(over):
    """Sample the number of connections until ``over`` is set, and return the maximum."""
    most = 0
    while not over.is_set():
        most = max(most, await asyncio.to_thread(connected))
        await asyncio.sleep(0.02)
    return most


def cancel(instances):
    """Cancel waiting Instances; called in another thread."""
    try:
        for instance in instances:
            queue.cancel(instance)
    finally:
        connection.close()


def state(answer):
    return json.loads(answer.body)["state"]


def may_not_wait(answer):
    return answer.status == 200 and "retry-after" in answer.headers


def is_busy(answer):
    """Return True if the response says that too many clients are waiting."""
    return answer.status == 429 and "retry-after" in answer.headers


async def until(condition):
    async with asyncio.timeout(IN_TIME):
        while not await condition():
            await asyncio.sleep(0.05)


# Under ASGI all wait, but for the last one if it comes while the test asks whether there is room;
# under WSGI so many of one user in each of two processes.
WAITERS = {"gunicorn": (2, 4), "uvicorn": (CLIENTS - 1, CLIENTS)}


@pytest.mark.timeout(300)
@pytest.mark.skipif(not IS_POSTGRESQL, reason="SQLite has no connections to count")
@pytest.mark.parametrize("kind", WAITERS)
def test_probes_are_answered_while_200_clients_wait(serve, kind):
    """The server uses few connections, and each client gets a correct response."""
    server = serve(kind, MAX_ASYNC_WAITERS=CLIENTS, MAX_ASYNC_WAITERS_PER_USER=CLIENTS)
    instances = [echo.enqueue() for _ in range(CLIENTS)]
    least, most = WAITERS[kind]

    async def run():
        over = asyncio.Event()
        paths = ("/atp/api/health", web.LIVE)
        probes = [asyncio.create_task(web.probing(server.port, path, over)) for path in paths]
        counting = asyncio.create_task(most_connections(over))
        clients = [asyncio.create_task(server.wait_for(each, WAIT)) for each in instances]

        async def are_taken():
            # On a machine so slow that some have waited to their end before the last has come,
            # they are never all there at once.
            is_over = any(client.done() for client in clients)
            return is_over or may_not_wait(await server.wait_for(instances[0], 0.01))

        async def are_answered():
            return sum(not client.done() for client in clients) <= most

        await until(are_taken if kind == "uvicorn" else are_answered)
        await asyncio.to_thread(cancel, instances)
        answers = await asyncio.gather(*clients)
        over.set()
        return answers, await asyncio.gather(*probes), await counting

    connection.close()
    answers, (healths, lives), most_connected = asyncio.run(run())
    assert most_connected <= MOST_CONNECTIONS
    assert {probe.status for probe in lives} == {200}
    assert max(probe.seconds for probe in (*healths, *lives)) < PROMPT
    pairs = zip(answers, instances, strict=True)
    told = [(answer, each) for answer, each in pairs if not is_busy(answer)]
    assert all(json.loads(answer.body)["uuid"] == str(each.uuid) for answer, each in told)
    answers = [answer for answer, _ in told]
    assert kind == "gunicorn" or len(answers) == CLIENTS
    waited = [answer for answer in answers if not may_not_wait(answer)]
    assert all(state(answer) == "FAILED" or answer.seconds >= WAIT for answer in waited)
    assert least <= len(waited)
    assert all(state(answer) == "ACCEPTED" for answer in answers if may_not_wait(answer))


# The settings of the server, the number of clients that wait, and the number that hang up.
PLACES = {
    "uvicorn": ({"MAX_ASYNC_WAITERS": 50}, 50, 60),
    # With --preload each process forks after loading, and has its own listener.
    "gunicorn": ({"MAX_WAITERS": 1}, 3, 6),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["uvicorn", pytest.param("gunicorn", marks=pytest.mark.long)])
def test_waiting_clients_take_few_threads_and_free_their_places_when_they_hang_up(
    serve, kind, monkeypatch
):
    real = web.gunicorn
    monkeypatch.setattr(web, "gunicorn", lambda *given: [*real(*given), "--preload"])
    given, count, leaving = PLACES[kind]
    server = serve(kind, **given)
    instance, other = echo.enqueue(), echo.enqueue()

    async def waits():
        """Retry if there is no place, such as when the test itself checks for free ones."""
        while "retry-after" in (answer := await server.wait_for(instance, 60)).headers:
            await asyncio.sleep(0.05)
        return answer

    async def are_taken():
        return may_not_wait(await server.wait_for(other, 0.01))

    async def are_few():
        return kind == "gunicorn" or server.threads() < 25

    async def is_free():
        return "retry-after" not in (await server.wait_for(other, 0.01)).headers

    async def run():
        clients = [asyncio.create_task(waits()) for _ in range(count)]
        await until(are_taken)
        await until(are_few)
        await asyncio.to_thread(cancel, [instance])
        answers = await asyncio.gather(*clients)
        gone = [await server.wait_for(other, 60, web.connected) for _ in range(leaving)]
        await until(are_taken)
        for _, writer in gone:
            writer.close()
        began = time.monotonic()
        await until(is_free)
        return answers, time.monotonic() - began

    answers, took = asyncio.run(run())
    assert {state(answer) for answer in answers} == {"FAILED"}
    assert took < 40


# In this process


def answer_when(act, api, instance):
    """Return the answer to a client that waits while ``act`` is called in another thread."""

    def work():
        wait_for(lambda: len(waiting.THREAD_SLOTS), IN_TIME)
        act()

    worker = Thread(work)
    answer = api.get(f"instances/{instance.uuid}?wait=60")
    worker.result(IN_TIME)
    return answer


def test_wait_returns_when_the_instance_has_ended(full, api, monkeypatch):
    """The waiting request holds no database connection, with ATOMIC_REQUESTS either."""
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    instance, move = full.claimed()
    move(Event.START)
    wrapper = connections[DEFAULT_DB_ALIAS]

    def finish():
        wait_for(lambda: wrapper.connection is None, IN_TIME)
        move(Event.FINISH)

    assert answer_when(finish, api, instance).json()["state"] == "FINISHED"
    # A refused batch leaves nothing behind.
    before, body = Instance.objects.count(), [{"type": "tests.echo"}, {"type": "tests.add"}]
    assert api.post("instances", body).status_code == 422
    assert Instance.objects.count() == before
    assert api.post("instances", body[:1]).status_code == 201


def test_wait_returns_404_when_the_instance_is_deleted(world, api):
    instance = echo.enqueue()

    def delete():
        with transaction.atomic():  # nobody sees it cancelled, and not yet removed
            queue.delete(instance, cancel=True)

    assert refusal(answer_when(delete, api, instance)) == (404, "unknown-instance")


def test_wait_returns_at_once_in_a_transaction_and_otherwise_after_its_time(full, api):
    """Inside a transaction the request would never see the Instance end."""
    address = f"instances/{full[State.RUNNING].uuid}"
    with transaction.atomic():
        assert api.get(f"{address}?wait=60").json()["state"] == State.RUNNING
    assert api.get(f"{address}?wait=0.05").json()["state"] == State.RUNNING


def test_a_client_over_the_waiting_limit_is_answered_at_once(world, api, settings, monkeypatch):
    """A process that serves one request at a time lets no client wait."""
    instance, given = echo.enqueue(), settings.ATP
    for bound in ("MAX_WAITERS", "MAX_WAITERS_PER_USER"):
        settings.ATP = {**given, bound: 0}
        monkeypatch.setattr("atp.api.instances.turns", Turns())
        answer = api.get(f"instances/{instance.uuid}?wait=60")
        assert (answer.status_code, answer.json()["state"]) == (200, "ACCEPTED")
        assert answer.headers["Retry-After"] == "5"
        assert api.get(f"instances/{instance.uuid}?wait=1.5").headers["Retry-After"] == "2"
    settings.ATP = given
    api.client.defaults["wsgi.multithread"] = False
    monkeypatch.setattr("atp.api.instances.turns", Turns())
    assert api.get(f"instances/{instance.uuid}?wait=60").headers["Retry-After"] == "5"
    # What has ended is told at once.
    queue.cancel(instance)
    answer = api.get(f"instances/{instance.uuid}?wait=60")
    assert (answer.json()["state"], "Retry-After" in answer.headers) == ("FAILED", False)


def test_a_client_gets_429_when_all_waiting_threads_are_taken(
    world, api, django_assert_num_queries
):
    instance = echo.enqueue()
    with ExitStack() as taken:
        for _ in range(waiting.most_threads()):
            assert taken.enter_context(waiting.THREADS.one())
        with django_assert_num_queries(0):
            answer = api.get(f"instances/{instance.uuid}?wait=60")
        assert refusal(answer) == (429, "throttled")
        assert int(answer.headers["Retry-After"]) >= SOONEST
        assert api.get(f"instances/{instance.uuid}").status_code == 200
    assert api.get(f"instances/{instance.uuid}?wait=0").status_code == 200


def test_many_refused_clients_are_told_to_return_at_different_times():
    """No client is told to come back later than the time that it wanted to wait."""
    turns = Turns()
    told = [turns.take() for _ in range(100)]
    assert told == sorted(told)
    assert told[0] == SOONEST
    assert max(Counter(told).values()) <= 2 * RATE
    assert told[-1] >= 60 / RATE
    assert max(turns.take(20) for _ in range(1000)) == 20
    assert turns.take() <= LONGEST_WAIT


def test_places_to_wait_are_limited_per_user_and_become_free_again(settings, monkeypatch):
    """A place is freed on request, when its time is over, or if the client never starts to wait."""
    settings.ATP = {"MAX_WAITERS": 3, "MAX_WAITERS_PER_USER": 2}
    places = waiting.Slots("MAX_WAITERS", "MAX_WAITERS_PER_USER")
    ann, bob = User(pk=1), User(pk=2)
    first, second, third = (places.take(ann) for _ in range(3))
    assert first is not None
    assert third is None
    assert places.take(bob) is not None
    assert places.take(bob) is None
    places.free(first)
    assert places.take(bob) is not None
    places.keep(second, 0.001)
    wait_for(lambda: places.take(ann))
    # A client may hang up before it waits.
    monkeypatch.setattr(waiting, "BEGINS_WITHIN", 0.001)
    settings.ATP = {"MAX_WAITERS": 1}
    places = waiting.Slots("MAX_WAITERS", "MAX_WAITERS_PER_USER")
    assert places.take(ann) is not None
    wait_for(lambda: places.take(bob))


def watching():
    return {thread for thread in threading.enumerate() if thread.name == "atp-ends"}


@pytest.fixture
def ends():
    wait_for(lambda: not watching(), IN_TIME)
    yield Ends()
    wait_for(lambda: not watching(), IN_TIME)


def test_one_thread_watches_all_instances_and_ends_with_them(world, ends):
    instances = [echo.enqueue() for _ in range(3)]
    ended = [threading.Event() for _ in instances]
    tokens = [ends.watch(i.pk, e.set) for i, e in zip(instances, ended, strict=True)]
    assert len(watching()) == 1
    queue.cancel(instances[0])
    assert ended[0].wait(IN_TIME)
    assert not ended[1].is_set()
    queue.delete(instances[1], cancel=True)
    assert ended[1].wait(IN_TIME)
    ends.forget(tokens[2])
    wait_for(lambda: not watching(), IN_TIME)
    # What has ended before is told, too.
    queue.cancel(instances[2])
    again = ends.watch(instances[2].pk, ended[2].set)
    assert ended[2].wait(IN_TIME)
    ends.forget(again)


def test_the_watching_thread_survives_a_database_error(world, ends, monkeypatch):
    instance, ended, failed = echo.enqueue(), threading.Event(), threading.Event()
    real = Instance.objects.using

    def using(alias):
        if not failed.is_set():
            failed.set()
            raise OperationalError("away")
        return real(alias)

    monkeypatch.setattr(Instance.objects, "using", using)
    token = ends.watch(instance.pk, ended.set)
    assert failed.wait(IN_TIME)
    queue.cancel(instance)
    assert ended.wait(IN_TIME)
    ends.forget(token)

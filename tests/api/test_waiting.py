"""Clients that wait, of real servers: what they hold, what they get, and who waits for them."""

import asyncio
import json
import os
import socket
import threading
import time
from collections import Counter
from contextlib import ExitStack

import psutil
import pytest
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.db import DEFAULT_DB_ALIAS, OperationalError, connection, connections, transaction
from django.test import Client

from atp import queue
from atp.api.queries import LONGEST_WAIT
from atp.api.waiting import slots
from atp.api.waiting.slots import RATE, SOONEST, Turns
from atp.models import Instance
from atp.reports.ends import Ends
from benchmarks.core import web

from .. import environment
from ..app.tasks import echo
from ..helpers import Thread, child_environment, wait_for
from .client import problem

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
    """Nobody has been sent away before."""
    monkeypatch.setattr("atp.api.instances.turns", Turns())


def free_port():
    with socket.socket() as found:
        found.bind((web.HOST, 0))
        return found.getsockname()[1]


class Server:
    """A web server of this test's database, and a reader who has logged in."""

    def __init__(self, kind, port, process):
        self.kind, self.port, self.process = kind, port, process
        user = User.objects.create_user("reader", password="of the tests only")
        user.user_permissions.add(
            Permission.objects.get(content_type__app_label="atp", codename="view_instance")
        )
        client = Client()
        client.force_login(user)
        name = settings.SESSION_COOKIE_NAME
        self.login = {"Cookie": f"{name}={client.cookies[name].value}"}

    def get(self, path, **headers):
        return web.get(self.port, path, **headers)

    def wait_for(self, instance, seconds):
        return self.get(f"/atp/api/instances/{instance.uuid}?wait={seconds}", **self.login)

    def connected(self, instance, seconds):
        path = f"/atp/api/instances/{instance.uuid}?wait={seconds}"
        return web.connected(self.port, path, **self.login)

    def threads(self):
        """How many threads all its processes have."""
        family = [self.process, *psutil.Process(self.process.pid).children(recursive=True)]
        return sum(psutil.Process(each.pid).num_threads() for each in family)


@pytest.fixture
def serve(tmp_path, world):
    """Start servers: ``serve("gunicorn")``; with settings of ATP."""
    with ExitStack() as stack:

        def start(kind, **given):
            port = free_port()
            command = getattr(web, kind)("tests", port)
            own = child_environment(ATP_TEST_SETTINGS=json.dumps(given))
            serving = web.serving(command, port, tmp_path / f"{kind}.log", own)
            return Server(kind, port, stack.enter_context(serving))

        yield start


def connected():
    """How many connections others have to the database of this test."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        return cursor.fetchone()[0]


class Counted(threading.Thread):
    """Counts connections until the end, and keeps the most that there were."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.over = 0, threading.Event()

    def run(self):
        try:
            while not self.over.wait(0.02):
                # Without its own, which is told by another thread.
                self.most = max(self.most, connected())
        finally:
            connection.close()

    def __enter__(self):
        connection.close()
        self.start()
        return self

    def __exit__(self, *exc):
        self.over.set()
        self.join(IN_TIME)


def cancel(instances):
    """End Instances that wait, from another thread."""
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
    """Whether it says that too many ask just now."""
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
def test_many_clients(serve, kind):
    """Probes are answered while all wait, on few connections; each gets an honest answer."""
    server = serve(kind, MAX_ASYNC_WAITERS=CLIENTS, MAX_ASYNC_WAITERS_PER_USER=CLIENTS)
    instances = [echo.enqueue() for _ in range(CLIENTS)]
    least, most = WAITERS[kind]

    async def run():
        over = asyncio.Event()
        paths = ("/atp/api/health", web.LIVE)
        probes = [asyncio.create_task(web.probing(server.port, path, over)) for path in paths]
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
        return answers, await asyncio.gather(*probes)

    with Counted() as counted:
        answers, (healths, lives) = asyncio.run(run())
    assert counted.most <= MOST_CONNECTIONS
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


@pytest.mark.timeout(300)
@pytest.mark.skipif(not IS_POSTGRESQL, reason="SQLite has no locks that stop readers")
def test_a_thread_is_left_for_others_whatever_the_database_does(serve):
    """Those who ask whether they may wait do not take them all, while none is answered."""
    server = serve("gunicorn")
    instance = echo.enqueue()

    async def run():
        clients = [asyncio.create_task(server.wait_for(instance, 1)) for _ in range(40)]
        async with asyncio.timeout(IN_TIME):
            while not any(client.done() for client in clients):
                await asyncio.sleep(0.05)
            return [await server.get(web.LIVE) for _ in range(10)], clients

    async def answered(clients):
        return await asyncio.gather(*clients)

    with asyncio.Runner() as runner:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("LOCK TABLE auth_user, django_session IN ACCESS EXCLUSIVE MODE")
            lives, clients = runner.run(run())
        answers = runner.run(answered(clients))
    assert {live.status for live in lives} == {200}
    assert all(is_busy(answer) or answer.status == 200 for answer in answers)
    assert any(is_busy(answer) for answer in answers)


@pytest.mark.timeout(300)
def test_no_thread_waits_under_asgi(serve):
    server = serve("uvicorn", MAX_ASYNC_WAITERS=50)
    instance = echo.enqueue()

    async def waits():
        """Ask again if the last room was taken by the test, which looks whether there is any."""
        while may_not_wait(answer := await server.wait_for(instance, 60)):
            await asyncio.sleep(0.05)
        return answer

    async def run():
        clients = [asyncio.create_task(waits()) for _ in range(50)]

        async def are_taken():
            return may_not_wait(await server.wait_for(instance, 0.01))

        async def are_few():
            return server.threads() < 25

        await until(are_taken)
        await until(are_few)
        await asyncio.to_thread(cancel, [instance])
        return await asyncio.gather(*clients)

    answers = asyncio.run(run())
    assert {state(answer) for answer in answers} == {"FAILED"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["gunicorn", "uvicorn"])
def test_who_has_hung_up_does_not_wait(serve, kind):
    """Its place is free long before its time is over: WSGI cannot tell, but gunicorn can."""
    bound = {"MAX_WAITERS": 1, "MAX_ASYNC_WAITERS": 1}
    server = serve(kind, **bound)
    instance = echo.enqueue()

    async def run():
        async def are_taken():
            return may_not_wait(await server.wait_for(instance, 0.01))

        # One for each process of gunicorn.
        gone = [await server.connected(instance, 60) for _ in range(6)]
        await until(are_taken)
        for _, writer in gone:
            writer.close()
        began = time.monotonic()
        await until(lambda: is_free(server, instance))
        return time.monotonic() - began

    assert asyncio.run(run()) < 40


async def is_free(server, instance):
    answer = await server.wait_for(instance, 0.01)
    return not may_not_wait(answer) and not is_busy(answer)


@pytest.mark.timeout(300)
def test_a_server_that_was_forked_when_loaded(serve, monkeypatch):
    """gunicorn --preload: each process has a listener of its own."""
    real = web.gunicorn
    monkeypatch.setattr(web, "gunicorn", lambda *given: [*real(*given), "--preload"])
    server = serve("gunicorn")
    instance = echo.enqueue()

    async def run():
        clients = [asyncio.create_task(server.wait_for(instance, 60)) for _ in range(3)]
        await until(lambda: is_waited_for(clients))
        await asyncio.to_thread(cancel, [instance])
        return await asyncio.gather(*clients)

    answers = asyncio.run(run())
    assert {state(answer) for answer in answers if "retry-after" not in answer.headers} == {
        "FAILED"
    }


async def is_waited_for(clients):
    return 1 <= sum(not client.done() for client in clients) <= 4


# In this process


def test_no_connection_is_held_meanwhile(world, api):
    instance = echo.enqueue()
    held = []

    def look():
        wait_for(lambda: len(slots.IN_THREADS), IN_TIME)
        wait_for(lambda: wrapper.connection is None, IN_TIME)
        held.append(wrapper.connection)
        cancel([instance])

    wrapper = connections[DEFAULT_DB_ALIAS]
    looking = Thread(look)
    answer = api.get(f"instances/{instance.uuid}?wait=60")
    looking.result(IN_TIME)
    assert (answer.json()["state"], held) == ("FAILED", [None])


@pytest.mark.parametrize("bound", ["MAX_WAITERS", "MAX_WAITERS_PER_USER"])
def test_who_may_not_wait_is_answered_at_once(world, api, settings, bound):
    settings.ATP = {**settings.ATP, bound: 0}
    answer = api.get(f"instances/{echo.enqueue().uuid}?wait=60")
    assert (answer.status_code, answer.json()["state"]) == (200, "ACCEPTED")
    assert answer.headers["Retry-After"] == "5"
    shorter = api.get(f"instances/{answer.json()['uuid']}?wait=1.5")
    assert shorter.headers["Retry-After"] == "2"


def test_a_process_that_serves_one_at_a_time(world, api, user_with):
    """While one waited there, nobody else would be served."""
    api.client.defaults["wsgi.multithread"] = False
    answer = api.get(f"instances/{echo.enqueue().uuid}?wait=60")
    assert answer.headers["Retry-After"] == "5"


def test_what_has_ended_is_told_there_at_once(world, api):
    """As it is in the tests of a project, whose client is such a process."""
    instance = echo.enqueue()
    queue.cancel(instance)
    answer = api.get(f"instances/{instance.uuid}?wait=60")
    assert (answer.json()["state"], "Retry-After" in answer.headers) == ("FAILED", False)


def test_who_comes_when_the_threads_are_taken(world, api, django_assert_num_queries):
    """It is told so at once, without the database."""
    instance = echo.enqueue()
    with ExitStack() as taken:
        for _ in range(slots.most_threads()):
            assert taken.enter_context(slots.THREADS.one())
        with django_assert_num_queries(0):
            answer = api.get(f"instances/{instance.uuid}?wait=60")
        assert (answer.status_code, problem(answer)) == (429, "throttled")
        assert int(answer.headers["Retry-After"]) >= SOONEST
        assert api.get(f"instances/{instance.uuid}").status_code == 200
    assert api.get(f"instances/{instance.uuid}?wait=0").status_code == 200


class TestTurns:
    def test_a_crowd_comes_back_one_after_another(self):
        turns = Turns()
        told = [turns.take() for _ in range(100)]
        assert told == sorted(told)
        assert told[0] == SOONEST
        assert max(Counter(told).values()) <= 2 * RATE
        assert told[-1] >= 60 / RATE

    def test_nobody_is_told_to_come_later_than_it_would_wait(self):
        turns = Turns()
        told = [turns.take(20) for _ in range(1000)]
        assert max(told) == 20
        assert turns.take() <= LONGEST_WAIT


def test_places_are_bounded_by_user_and_freed(settings):
    settings.ATP = {"MAX_WAITERS": 3, "MAX_WAITERS_PER_USER": 2}
    places = slots.Slots("MAX_WAITERS", "MAX_WAITERS_PER_USER")
    ann, bob = User(pk=1), User(pk=2)
    first, _, third = (places.take(ann) for _ in range(3))
    assert first is not None
    assert third is None
    assert places.take(bob) is not None
    assert places.take(bob) is None
    places.free(first)
    assert places.take(bob) is not None


def test_a_place_is_freed_when_its_time_is_over(settings):
    settings.ATP = {"MAX_WAITERS": 1}
    places = slots.Slots("MAX_WAITERS", "MAX_WAITERS_PER_USER")
    place = places.take(User(pk=1))
    places.keep(place, 0.001)
    wait_for(lambda: places.take(User(pk=2)))


def test_a_place_of_whom_nobody_hears_again(settings, monkeypatch):
    """A client may hang up before it waits."""
    monkeypatch.setattr(slots, "BEGINS_WITHIN", 0.001)
    settings.ATP = {"MAX_WAITERS": 1}
    places = slots.Slots("MAX_WAITERS", "MAX_WAITERS_PER_USER")
    assert places.take(User(pk=1)) is not None
    wait_for(lambda: places.take(User(pk=2)))


class TestEnds:
    @pytest.fixture
    def ends(self):
        ends = Ends()
        yield ends
        wait_for(lambda: not is_running(ends), IN_TIME)

    def test_one_thread_for_all_which_ends_with_them(self, world, ends):
        instances = [echo.enqueue() for _ in range(3)]
        ended = [threading.Event() for _ in instances]
        tokens = [ends.watch(i.pk, e.set) for i, e in zip(instances, ended, strict=True)]
        threads = {t for t in threading.enumerate() if t.name == "atp-ends"}
        assert len(threads) == 1
        queue.cancel(instances[0])
        assert ended[0].wait(IN_TIME)
        assert not ended[1].is_set()
        queue.delete(instances[1], cancel=True)
        assert ended[1].wait(IN_TIME)
        ends.forget(tokens[2])
        wait_for(lambda: not any(thread.is_alive() for thread in threads), IN_TIME)
        again = ends.watch(instances[2].pk, ended[2].set)
        queue.cancel(instances[2])
        assert ended[2].wait(IN_TIME)
        ends.forget(again)

    def test_what_had_ended_before(self, world, ends):
        instance = echo.enqueue()
        queue.cancel(instance)
        ended = threading.Event()
        ends.watch(instance.pk, ended.set)
        assert ended.wait(IN_TIME)

    def test_it_outlives_a_database_that_is_away(self, world, ends, monkeypatch):
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

    @pytest.mark.processes
    def test_a_process_that_is_forked_begins_anew(self, world, ends):
        instance = echo.enqueue()
        token = ends.watch(instance.pk, print)
        pid = os.fork()
        if not pid:
            os._exit(0 if ends._thread is None and not ends._waiting else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        ends.forget(token)


def is_running(ends):
    thread = ends._thread
    return thread is not None and thread.is_alive()

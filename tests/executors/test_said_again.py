"""What an attempt says while the link to its daemon is cut is said again, or counted as lost."""

import socket

import pytest

from atp.daemon import keeper
from atp.daemon.follower import Job
from atp.daemon.protocol import Progress
from atp.executors.ticket import Leave, Said, Ticket
from atp.executors.wire import Wire
from tests.helpers import wait_for

KEY = 1, 1


def said(number):
    return Said(KEY, number, Progress(KEY, 0.0, None, f"message {number}"), 0.0)


class Server:
    """The end of a daemon to which a keeper connects, again and again."""

    def __init__(self):
        self._server = socket.create_server(("127.0.0.1", 0))
        self.wire = None
        self.address = self._server.getsockname()

    def accept(self, client):
        if self.wire is not None:
            self.wire.close()
        self.wire = Wire(self._server.accept()[0], is_server=True)
        self.wire.flush()
        client.wire.flush()
        wait_for(lambda: [*client.wire.receive(), client.wire.is_open][-1])

    def said(self, count):
        """Return the next messages of the attempt, ``count`` of them."""
        found = []

        def has_all():
            found.extend(each for each in self.wire.receive() if isinstance(each, Said))
            return len(found) >= count

        wait_for(has_all)
        return found

    def close(self):
        self.wire.close()
        self._server.close()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


@pytest.fixture
def client(server, monkeypatch):
    """A keeper's connection to a daemon, for which it runs one attempt."""
    monkeypatch.setattr(keeper, "AGAIN", 0.0)
    client = keeper.Daemon(server.address)
    ticket = Ticket(*server.address, *KEY, "elsewhere.note")
    client.jobs[KEY] = keeper.Job(None, 1, ticket, None, place=object())
    client.turn()
    server.accept(client)
    yield client
    client.cut()


def test_what_was_not_heard_is_said_again_after_a_cut(server, client):
    job = client.jobs[KEY]
    for number in (1, 2, 3):
        client.pass_on(job, said(number).message)
    assert [each.number for each in server.said(3)] == [1, 2, 3]
    client.on_leave(Leave((KEY,), (1,), 5.0, 0.0))
    client.cut()
    client.pass_on(job, said(4).message)
    client.turn()
    server.accept(client)
    assert [(each.number, each.message.text) for each in server.said(3)] == [
        (number, f"message {number}") for number in (2, 3, 4)
    ]


def test_messages_beyond_the_longest_queue_are_dropped_and_counted(server, client):
    """The oldest are dropped, so their numbers are missing before those that arrive."""
    job, more = client.jobs[KEY], 5
    client.cut()
    for number in range(1, keeper.MOST_SAID_AGAIN + more + 1):
        client.pass_on(job, said(number).message)
    client.turn()
    server.accept(client)
    found = server.said(keeper.MOST_SAID_AGAIN)
    daemons = Job(None, None, None)
    assert sum(daemons.hear(each.number) or 0 for each in found) == more


def test_daemon_counts_what_was_lost_and_hears_nothing_twice():
    job = Job(None, None, None)
    assert [job.hear(number) for number in (1, 2, 2, 1, 5, 6)] == [0, 0, None, None, 2, 0]

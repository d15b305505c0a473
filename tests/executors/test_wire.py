"""The signed connection between a daemon and a keeper, and who is not heard on it."""

import pickle
import socket
import struct

import pytest
from django.test import override_settings

from atp.daemon.protocol import Look
from atp.executors.ticket import Hello, No
from atp.executors.wire import LONGEST, Forged, Wire

HELLO = Hello("host", 5, "", ())


@pytest.fixture
def links():
    """The sockets of the two ends: of the daemon, and of the keeper."""
    pair = socket.socketpair()
    yield pair
    for link in pair:
        link.close()


@pytest.fixture
def strangers(links):
    """Two ends that have heard nothing from each other."""
    return Wire(links[0], is_server=True), Wire(links[1], is_server=False)


@pytest.fixture
def ends(strangers):
    """Two ends that have greeted each other, and have said nothing else."""
    server, client = strangers
    client.send(HELLO)
    assert list(server.receive()) == []
    assert list(client.receive()) == []
    assert list(server.receive()) == [HELLO]
    return server, client


def test_messages_arrive_in_order_in_both_directions(ends):
    server, client = ends
    for number in range(100):
        client.send(No((1, number), "x" * number))
        server.send(Look())
    assert [message.key[1] for message in server.receive()] == list(range(100))
    assert list(client.receive()) == [Look()] * 100


def test_who_does_not_know_the_key_is_not_heard(strangers):
    server, client = strangers
    client.send(HELLO)
    list(server.receive())
    with override_settings(SECRET_KEY="another"):
        list(client.receive())
    with pytest.raises(Forged, match="signature"):
        list(server.receive())


def test_message_that_was_said_before_is_refused(ends, links):
    server, client = ends
    client.send(No((1, 2), ""))
    heard = links[0].recv(1 << 16, socket.MSG_PEEK)
    assert len(list(server.receive())) == 1
    links[1].send(heard)
    with pytest.raises(Forged, match="signature"):
        list(server.receive())


@pytest.mark.parametrize("thing", [print, pickle.loads, struct.Struct, socket.socket])
def test_message_of_anything_else_is_refused(ends, thing):
    server, client = ends
    client.send(thing)
    with pytest.raises(Forged, match="a message wants"):
        list(server.receive())


def test_length_of_a_stranger_is_bounded(strangers, links):
    server, client = strangers
    client.flush()
    links[1].send(struct.pack("!I", LONGEST - 1) + bytes(32))
    with pytest.raises(Forged, match="bytes"):
        list(server.receive())

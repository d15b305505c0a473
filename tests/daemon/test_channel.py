"""Channels: whole messages, large ones, descriptors, and taking back what was not read."""

import os

import pytest

from atp.daemon.shared.channel import MAX_PACKET, Channel, Closed


@pytest.fixture
def ends():
    pair = Channel.pair()
    yield pair
    for end in pair:
        end.close()


@pytest.mark.parametrize("size", [0, 10, MAX_PACKET, 5_000_000])
def test_messages_arrive_whole(ends, size):
    here, there = ends
    here.send(("kind", b"x" * size))
    here.send("next")
    assert there.receive() == (("kind", b"x" * size), [])
    assert there.receive() == ("next", [])


def test_descriptors_travel_along(ends):
    here, there = ends
    reader, writer = os.pipe()
    here.send(("pipe", b"x" * 100_000), [reader])
    os.close(reader)
    (kind, _), [received] = there.receive()
    assert kind == "pipe"
    os.write(writer, b"hello")
    assert os.read(received, 10) == b"hello"
    assert not os.get_inheritable(received)
    os.close(received)
    os.close(writer)


def test_nothing_has_come(ends):
    with pytest.raises(BlockingIOError):
        ends[0].receive(wait=False)
    assert list(ends[0].drain()) == []


def test_unread_messages_can_be_taken_back(ends):
    """Whoever has a duplicate of the reader's end reads what it has not read yet."""
    here, there = ends
    duplicate = Channel.from_descriptor(os.dup(there.fileno()))
    for number in range(5):
        here.send(number)
    assert there.receive()[0] == 0
    assert list(duplicate.drain()) == [1, 2, 3, 4]
    with pytest.raises(BlockingIOError):
        there.receive(wait=False)
    duplicate.close()


def fill(channel):
    """Send until it would block; returns how many messages that took."""
    sent = 0
    try:
        while True:
            channel.send(b"x" * 10_000, wait=False)
            sent += 1
    except BlockingIOError:
        return sent


def test_a_full_channel_does_not_block(ends):
    here, there = ends
    sent = fill(here)
    assert sent > 0
    assert len(list(there.drain())) == sent


def test_a_closed_end_is_noticed():
    here, there = Channel.pair()
    here.send("last words")
    here.close()
    assert there.receive()[0] == "last words"
    with pytest.raises(Closed):
        there.receive()
    with pytest.raises(Closed):
        there.send("anybody there?")
    there.close()
